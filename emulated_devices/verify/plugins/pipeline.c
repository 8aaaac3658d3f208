/* pipeline.c -- the laws of a pipeline schedule: what it makes can be executed, and trains as one device.
 *
 * kinds.c lists law_kind_pipeline.  Schedules are asked for 1 to 6 devices and 1 to 12 microbatches.  Errors are
 * ERR_MEMORY.
 */
#include "emulated_devices/verify/plugins/laws.h"
#include <stdio.h>
#include <string.h>

enum { EXECUTES, REPEATS, SIZES, ACCEPTS, ONCE_EACH, EQUALITY, TRAINS };
static const struct law pipeline_laws[] = {
    [EXECUTES] = { "executes", "each action is there once and after what it needs; there is no deadlock" },
    [REPEATS] = { "repeats", "equal requests give equal lists" },
    [SIZES] = { "sizes", "it has the devices, microbatches and chunks that were asked for" },
    [ACCEPTS] = { "accepts", "what .refuses does not refuse is made; a refusal has a text; some request is accepted" },
    [ONCE_EACH] = { "trained", "each stage has one forward and one backward of each microbatch" },
    [EQUALITY] = { "equality", "gradients are added in the order of microbatches, unless .equality says otherwise" },
    [TRAINS] = { "trains", "training on 2 and 3 devices is that of one device; messages and memory are as stated" },
    { NULL, NULL }
};

enum { MOST_DEVICES = 6, MOST_MICROS = 12 };

static bool same_lists(const struct schedule *a, const struct schedule *b)
{
    if (a->devices != b->devices || a->stages != b->stages) return false;
    for (int d = 0; d < a->devices; d++) {
        if (a->count[d] != b->count[d]) return false;
        for (int i = 0; i < a->count[d]; i++) {
            const struct action x = a->actions[d][i], y = b->actions[d][i];
            if (x.kind != y.kind || x.micro != y.micro || x.chunk != y.chunk || x.peer != y.peer) return false;
        }
    }
    return true;
}

/* Count passes over all devices: a microbatch visits each stage of its route once in each direction. */
static void judge_passes(struct book *book, const struct schedule *schedule)
{
    int64_t forwards = 0, backwards = 0;
    for (int d = 0; d < schedule->devices; d++)
        for (int i = 0; i < schedule->count[d]; i++) {
            const enum action_kind kind = schedule->actions[d][i].kind;
            forwards += kind == FORWARD, backwards += kind == BACKWARD || kind == BACKWARD_WEIGHT;
        }
    const int64_t want = (int64_t)schedule->stages * schedule->micros;
    law_judge(book, ONCE_EACH, schedule_is_partial(schedule) || (forwards == want && backwards == want),
              "%d devices, %d microbatches: %lld forwards and %lld backwards, of %lld each", schedule->devices,
              schedule->micros, (long long)forwards, (long long)backwards, (long long)want);
}

/* @return whether the request was accepted. */
static bool judge_request(struct book *book, const struct schedule_generator *generator,
                          const struct schedule_request *request)
{
    struct schedule first, second;
    struct error err = { OK, "" };
    const int P = request->devices, M = request->micros;
    law_now(book, ".make for %d devices, %d microbatches", P, M);
    const char *const refused = generator->refuses ? generator->refuses(request) : NULL;
    law_judge(book, ACCEPTS, !(refused && refused[0] == '\0'),
              "%d devices, %d microbatches: refused with an empty text", P, M);
    if (refused) return false;
    const enum error_code e = generator->make(&first, request, &err);
    law_judge(book, ACCEPTS, e == OK, "%d devices, %d microbatches: .make fails: %s", P, M, err.text);
    if (e) return false;
    law_judge(book, SIZES, first.devices == P && first.micros == M && first.chunks == request->chunks,
              "%d devices, %d microbatches: it made %d, %d, with %d chunks", P, M, first.devices, first.micros,
              first.chunks);
    law_judge(book, EXECUTES, schedule_validate(&first, &err) == OK, "%d devices, %d microbatches: %s", P, M, err.text);
    judge_passes(book, &first);
    law_judge(book, EQUALITY, generator->head.equality != PERMUTES || schedule_adds_in_order(&first), "%d devices, %d "
              "microbatches: gradients are added in another order; .equality says PERMUTES", P, M);
    if (generator->make(&second, request, &err) == OK) {
        law_judge(book, REPEATS, same_lists(&first, &second),
                  "%d devices, %d microbatches: other lists the second time", P, M);
        schedule_free(&second);
    } else law_judge(book, REPEATS, false, "%d devices, %d microbatches: it fails the second time", P, M);
    schedule_free(&first);
    return true;
}

static enum error_code judge_pipeline(struct book *book, const struct plugin_item *item, struct error *err)
{
    const struct schedule_generator *const generator = (const struct schedule_generator *)item->scheme;
    const char *words[] = { "--model", "tiny", "--schedule", generator->head.name, "--pp", "2", "--micro", "4",
                            "--batch", "4", NULL };
    int accepted = 0, at[MOST_DEVICES + 1] = { 0 };
    for (int P = 1; P <= MOST_DEVICES; P++)
        for (int M = 1; M <= MOST_MICROS; M++) {
            const bool taken = judge_request(book, generator, &(struct schedule_request){
                .devices = P, .micros = M, .chunks = generator->chunks ? generator->chunks : 1 });
            accepted += taken;
            if (M == (P == 3 ? 6 : 4)) at[P] = taken;
        }
    law_judge(book, ACCEPTS, accepted > 0, ".refuses refuses every request");
    enum error_code e = at[2] ? law_trains(book, TRAINS, words, err) : OK;
    words[5] = "3", words[7] = words[9] = "6";
    if (!e && at[3]) e = law_trains(book, TRAINS, words, err);
    if (!at[2] && !at[3]) law_leave_out(book, TRAINS);
    return e;
}

static bool is_pipeline(const struct plugin_item *item)
{
    return item->scheme && item->scheme->kind == PIPELINE_SCHEME;
}

static void name_pipeline(const struct plugin_item *item, char name[LAW_NAME])
{
    snprintf(name, LAW_NAME, "%s", item->scheme->name ? item->scheme->name : "without a name");
}

/* Schedules that step inside the list or leave stages out do not train as one device with its defaults. */
static bool built_in_pipeline(int place, struct plugin_item *item)
{
    const struct schedule_generator *s;
    for (int i = 0; (s = schedule_generator_at(i)) != NULL; i++)
        if (!s->skips && !s->streams && place-- == 0) return *item = (struct plugin_item){ .scheme = &s->head }, true;
    return false;
}

const struct law_kind law_kind_pipeline = {
    .name = "pipeline", .laws = pipeline_laws, .is = is_pipeline, .names = name_pipeline,
    .built_in = built_in_pipeline, .judge = judge_pipeline,
};
