/* schedule.c -- draws a schedule and prints its costs. */
#include "emulated_devices/cli/show/schedule.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/draw/timeline.h"
#include "emulated_devices/draw/schedule.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/document.h"
#include "ref/io/terminal.h"
#include <cjson/cJSON.h>
#include <stdlib.h>

struct asked {
    const char *name, *svg, *save;
    int pp, micro, chunks, limit, update_every, skip;
    uint64_t forward, backward_input, backward_weight, communication, update;
    bool plain, pp_given, micro_given;
};

static enum error_code parse(struct asked *a, int argc, char **argv, bool *done, struct error *err)
{
    /* a tenth of a second: four million times this fits in 64 bits */
    static const uint64_t LONGEST = 100000000000;
    const struct option table[] = {
        { "NAME|FILE", NULL, OPTION_STRING, &a->name,
          .help = "a registered schedule, or a file of your own; default: list the registered ones" },
        { .kind = OPTION_HEADING, .help = "Schedule" },
        { "--pp", "P", OPTION_INT, &a->pp, .min = 1, .max = 4096, .given = &a->pp_given, .help = "devices" },
        { "--micro", "M", OPTION_INT, &a->micro, .min = 1, .max = 1 << 20, .given = &a->micro_given,
          .help = "microbatches" },
        { "--chunks", "V", OPTION_INT, &a->chunks, .min = 0, .max = 1024,
          .help = "stages on each device; 0: the schedule's own number" },
        { "--limit", "N", OPTION_INT, &a->limit, .min = 0, .max = 1 << 20,
          .help = "memory for zb-1p and zb-2p, in microbatches" },
        { "--skip", "N", OPTION_INT, &a->skip, .min = 0, .max = 4096,
          .help = "stages that a skippipe microbatch skips; 0: a third of the middle ones" },
        { "--update-every", "N", OPTION_INT, &a->update_every, .min = 0, .max = 1 << 20,
          .help = "microbatches of a pipedream-2bw batch; 0: pp" },
        { .kind = OPTION_HEADING, .help = "Times of a stage, in any unit" },
        { "--F", "T", OPTION_UINT64, &a->forward, .help = "forward" },
        { "--I", "T", OPTION_UINT64, &a->backward_input, .help = "backward for the input" },
        { "--W", "T", OPTION_UINT64, &a->backward_weight, .help = "backward for the weights" },
        { "--comm", "T", OPTION_UINT64, &a->communication, .help = "a message, from send to arrival" },
        { "--U", "T", OPTION_UINT64, &a->update, .help = "an optimizer's step inside the schedule" },
        { .kind = OPTION_HEADING, .help = "Output" },
        { "--svg", "FILE", OPTION_STRING, &a->svg, .help = "also draw to an SVG file" },
        { "--save", "FILE", OPTION_STRING, &a->save, .help = "also write the schedule as text" },
        { "--plain", NULL, OPTION_SWITCH, &a->plain, .help = "no colours" },
        { 0 }
    };
    enum error_code code = parse_command("show schedule", "[NAME|FILE] [options]",
                                         "Draw a pipeline schedule, with its bubble, memory and messages.",
                                         argc, argv, table, done, err);
    const uint64_t times[] = { a->forward, a->backward_input, a->backward_weight, a->communication, a->update };
    static const char *const flag[] = { "--F", "--I", "--W", "--comm", "--U" };
    for (int i = 0; code == OK && i < 5; i++)
        if (times[i] > LONGEST)
            code = fail(err, ERR_USAGE, "%s %llu: must be at most 1e11", flag[i], (unsigned long long)times[i]);
    return code;
}

static void list_schedules(FILE *to)
{
    say(to, 0, "Schedules that can be shown. `orrery list schedules` says what each needs and costs.");
    fprintf(to, "\n");
    for (int i = 0; schedule_generator_at(i); i++) {
        fprintf(to, "  %-13s ", schedule_generator_at(i)->head.name);
        print_wrapped(to, 16, schedule_generator_at(i)->head.description);
    }
    fprintf(to, "\nTry `orrery show schedule zb-h1 --pp 4 --micro 8`.\n");
}

/* A file defines its numbers of devices, microbatches and chunks; given flags must be equal. */
static enum error_code get(struct schedule *s, const struct asked *a, struct error *err)
{
    const bool file = schedule_is_file(a->name);
    const struct schedule_request q = {
        .devices = file && !a->pp_given ? 0 : a->pp, .micros = file && !a->micro_given ? 0 : a->micro,
        .chunks = a->chunks,
        .memory_limit = a->limit, .update_every = a->update_every, .skip = a->skip,
        .forward = (int64_t)a->forward, .backward_input = (int64_t)a->backward_input,
        .backward_weight = (int64_t)a->backward_weight, .communication = (int64_t)a->communication,
    };
    enum error_code code = schedule_by_name(s, a->name, &q, err);
    if (code == OK && (code = schedule_validate(s, err)) != OK) schedule_free(s);
    return code;
}

static int64_t busiest(const struct timing *t)
{
    int64_t most = 0;
    for (int d = 0; d < t->devices; d++) most = t->busy[d] > most ? t->busy[d] : most;
    return most;
}

static void say_numbers(FILE *to, const struct schedule *s, const struct timing *t, const struct asked *a)
{
    fprintf(to, "\n");
    say(to, 0, "%s: %d device%s, %d microbatch%s, %d stage%s on each device", s->name, s->devices,
        plural(s->devices), s->micros, s->micros == 1 ? "" : "es", s->chunks, plural(s->chunks));
    say(to, 12, "  time      %lld, with stage times F %llu, I %llu, W %llu, and %llu for a message",
            (long long)t->makespan, (unsigned long long)a->forward, (unsigned long long)a->backward_input,
            (unsigned long long)a->backward_weight, (unsigned long long)a->communication);
    say(to, 12, "  bubble    %.2f %%: %lld of work, in %lld from a device's first action to its last",
            100 * t->bubble, (long long)busiest(t), (long long)t->span);
    if (t->makespan > t->span)
        say(to, 12, "            %.2f %% with fill and drain, in %lld", 100 * t->idle, (long long)t->makespan);
    timeline_say_rest(to, s);
}

/* Every pass of every device, for --json. */
static void add_to_document(const struct schedule *s, const struct timing *t)
{
    cJSON *data = document_data();
    if (data == NULL) return;
    cJSON_AddStringToObject(data, "schedule", s->name);
    cJSON_AddNumberToObject(data, "devices", s->devices);
    cJSON_AddNumberToObject(data, "microbatches", s->micros);
    cJSON_AddNumberToObject(data, "chunks", s->chunks);
    cJSON_AddNumberToObject(data, "time", (double)t->makespan);
    cJSON_AddNumberToObject(data, "bubble", t->bubble);
    cJSON_AddNumberToObject(data, "idle", t->idle);
    document_table("passes");
    for (int d = 0; d < s->devices; d++)
        for (int i = 0; i < s->count[d]; i++) {
            const struct action a = s->actions[d][i];
            if (action_is_message(a.kind)) continue;
            cJSON *row = document_row();
            cJSON_AddNumberToObject(row, "device", d);
            cJSON_AddStringToObject(row, "pass", action_letter(a.kind));
            cJSON_AddNumberToObject(row, "microbatch", a.micro);
            cJSON_AddNumberToObject(row, "chunk", a.chunk);
            cJSON_AddNumberToObject(row, "start", (double)t->start[d][i]);
            cJSON_AddNumberToObject(row, "end", (double)t->end[d][i]);
        }
}

static enum error_code time_it(struct timing *t, const struct schedule *s, const struct asked *a, struct error *err)
{
    const struct even_times each = { (int64_t)a->forward, (int64_t)a->backward_input, (int64_t)a->backward_weight,
                                     (int64_t)a->communication, (int64_t)a->update };
    return schedule_time_evenly(t, s, each, err);
}

enum error_code show_schedule(int argc, char **argv, FILE *to, struct error *err)
{
    struct asked a = { .pp = 4, .micro = 8, .forward = 1, .backward_input = 1, .backward_weight = 1 };
    struct schedule s;
    struct timing t;
    bool help = false;
    enum error_code code = parse(&a, argc, argv, &help, err);
    if (code != OK || help) return code;
    if (a.name == NULL) return list_schedules(to), OK;
    if ((code = get(&s, &a, err)) != OK) return code;
    if ((code = time_it(&t, &s, &a, err)) == OK) {
        schedule_draw_text(to, &s, &t, picture_columns(to), !a.plain && terminal_has_colours(to));
        add_to_document(&s, &t);
        say_numbers(to, &s, &t, &a);
        fflush(to);                     /* FILE may be the standard output */
        if (a.svg != NULL) code = timeline_to_file(a.svg, &s, &t, false, err);
        if (code == OK && a.save != NULL) code = timeline_to_file(a.save, &s, NULL, false, err);
        timing_free(&t);
    }
    schedule_free(&s);
    return code;
}
