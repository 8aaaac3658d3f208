/* choose.c -- `orrery plan --devices N` and --fewest: searches as `orrery search` does, then plans the best in full.
 * train.c calls.  ERR_CHECK means that no plan fits; other errors are those of words, of a search or of a plan. */
#include "emulated_devices/cli/train/choose.h"
#include "emulated_devices/cli/train/machine.h"
#include "emulated_devices/cli/train/search_report.h"
#include "emulated_devices/run/report/plan_report.h"
#include "emulated_devices/train/dry_run/alone.h"
#include "ref/io/columns.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

/* ---- options ----------------------------------------------------------------------------------------------------- */

struct plan_asked plan_asked;

#define FEWEST { "--fewest", NULL, OPTION_SWITCH, &plan_asked.fewest, \
    .help = "find the fewest devices on which a step fits, up to those of --devices, and plan the best plan of so " \
            "many" }

const struct option plan_options[] = {
    { .kind = OPTION_HEADING, .help = "Questions (docs/plans/questions.md)" },
    { "--devices", "N", OPTION_INT, &search_asked.devices, .min = 1, .max = MESH_MOST_DEVICES,
      .given = &plan_asked.devices_given,
      .help = "choose the mesh, schemes, microbatches and recomputation for N devices, as `orrery search` does; an "
              "axis, scheme or number that is given is kept, a list such as --tp 4,8 is chosen from" },
    FEWEST,
    { "--like", "LIST", OPTION_STRING, &search_asked.like, .given = &plan_asked.like_given,
      .help = "with these two: only schemes that these frameworks have (`orrery list likes`); all: every scheme" },
    { "--seconds", "S", OPTION_DOUBLE, &search_asked.seconds, .min = 0, .max = 1e9, .given = &plan_asked.seconds_given,
      .help = "likewise: choose after S seconds from what was found" },
    { "--top", "N", OPTION_INT, &search_asked.top, .min = 1, .max = 1000, .given = &plan_asked.top_given,
      .help = "likewise: different plans that are printed" },
    { "--zero-table", NULL, OPTION_SWITCH, &plan_asked.zero_table,
      .help = "a row for each data scheme that the plan can have: memory, bytes sent, time" },
    { "--against", "WORDS", OPTION_STRING, &plan_asked.against,
      .help = "why this plan needs more memory than another, or less: the words, in quotes, in which the other "
              "differs" },
    { 0 }
};

enum { CHOOSE_OPTIONS = 48 };
static struct option choose_options[CHOOSE_OPTIONS];

/* Files and planners by layers are what `orrery search` has. */
static bool is_of_search_alone(const char *name)
{
    static const char *const alone[] = { "--out", "--explain", "--table", "--table-out", "--page" };
    for (size_t i = 0; name && i < sizeof alone / sizeof *alone; i++)
        if (strcmp(name, alone[i]) == 0) return true;
    return false;
}

/* A choice has the options of a search, and --fewest; with this, --devices may be left out. */
static const struct option *make_options(void)
{
    size_t n = 0;
    for (const struct option *o = search_options; o->kind != OPTION_END && n < CHOOSE_OPTIONS - 2; o++) {
        if (is_of_search_alone(o->name)) continue;
        choose_options[n] = *o;
        if (o->name && strcmp(o->name, "--devices") == 0)
            choose_options[n].required = false, choose_options[n].given = &plan_asked.devices_given;
        n++;
    }
    choose_options[n++] = (struct option)FEWEST;
    choose_options[n] = (struct option){ 0 };
    return choose_options;
}

bool choose_is_asked(int argc, char *const argv[])
{
    return !options_ask_for_help(argc, argv)
           && (options_given(argc, argv, "--devices") || options_given(argc, argv, "--fewest"));
}

enum error_code choose_check(struct error *err)
{
    const char *const alone = plan_asked.like_given ? "--like" : plan_asked.seconds_given ? "--seconds"
                            : plan_asked.top_given ? "--top" : NULL;
    if (plan_asked.devices_given || plan_asked.fewest)
        return fail(err, ERR_USAGE, "%s: is for the command line, not for the file of --config",
                    plan_asked.fewest ? "--fewest" : "--devices");
    return alone ? fail(err, ERR_USAGE, "%s: is for --devices N and --fewest, which choose a plan", alone) : OK;
}

/* ---- the fewest devices ------------------------------------------------------------------------------------------ */

/* A number of devices that was tried. */
struct tried { int devices; uint64_t needs; char words[PLAN_WORDS]; };   /* needs 0: there is no mesh of so many */

struct fewest {
    uint64_t state;                     /* bytes that any number of devices holds together, at least */
    int first, last;                    /* fewer than `first` have less memory together; the last that fits, 0: none */
    struct tried *of;                   /* [count] those tried, from `first` on */
    int count;
    struct choice lean;                 /* the plan that fits */
};

/* Weights and optimizer state are held by some device, whatever the plan is, unless they lie on the host. */
static enum error_code fewest_open(struct fewest *fewest, const struct train_options *options, uint64_t memory,
                                   struct error *err)
{
    struct arena_use kept;
    const bool offloads = search_asked.space.only[BY_OFFLOAD] != NULL;
    const enum error_code e = alone_state(&options->plan, &kept, err);
    if (e) return e;
    fewest->state = kept.tag[PARAMETERS]
        + (offloads || options->plan.optimizer->low_rank ? 0 : kept.tag[OPTIMIZER]);
    fewest->first = memory == 0 ? 1 : fewest->state / memory >= MESH_MOST_DEVICES ? MESH_MOST_DEVICES + 1
                  : (int)((fewest->state + memory - 1) / memory);
    fewest->first = fewest->first > 1 ? fewest->first : 1;
    return OK;
}

/* Try a number of devices.  @return OK; whether it fits is in fewest->last. */
static enum error_code fewest_try(struct fewest *fewest, const struct train_options *options, int devices,
                                  struct error *err)
{
    struct searched s;
    struct tried *const t = &fewest->of[fewest->count];
    int place = -1;
    search_asked.devices = devices;
    *t = (struct tried){ .devices = devices };
    enum error_code e = searched_open(&s, options, choose_options, err);
    if (!e) e = searched_leanest(&s, &place, err);
    if (!e && place >= 0) {
        const struct candidate *c = &s.search.of[place];
        t->needs = c->peak > c->least ? c->peak : c->least;
        searched_words(&s, place, t->words);
        if (c->time > 0 && (s.search.memory == 0 || c->peak <= s.search.memory))
            fewest->last = devices, fewest->lean = c->choice;
    }
    fewest->count++;
    const bool ended = s.search.ended;
    searched_close(&s);
    if (ended && fewest->last == 0)
        return fail(err, ERR_CHECK, "%s: ended while %d devices were tried; fewer do not fit", searched_why_ended(),
                    devices);
    return e == ERR_PLAN ? OK : e;                      /* there is no plan of so many devices */
}

/* The number tried before that came nearest; NULL: none has a plan. */
static const struct tried *fewest_nearest(const struct fewest *fewest)
{
    const struct tried *near = NULL;
    for (int i = 0; i < fewest->count; i++)
        if (fewest->of[i].needs > 0 && fewest->of[i].devices != fewest->last) near = &fewest->of[i];
    return near;
}

static enum error_code fewest_fail(const struct fewest *fewest, int most, uint64_t memory, struct error *err)
{
    const struct tried *const near = fewest_nearest(fewest);
    if (near == NULL)
        return fail(err, ERR_CHECK, "--fewest: there is no plan of 1 to %d devices; --devices N tries up to N", most);
    return fail(err, ERR_CHECK, "--fewest: none of 1 to %d devices fits; with %d the smallest, %s, lacks %s; "
                "--devices N tries up to N", most, near->devices, near->words, size_format(near->needs - memory).text);
}

/* Without --devices, so many numbers are tried. */
enum { FEWEST_TRIES = 64 };

/* Every number of devices is tried in turn, as more devices may need more memory each: none is left out because a
 * smaller or larger one fits. */
static enum error_code find_fewest(struct fewest *fewest, const struct train_options *options, struct error *err)
{
    const int fewest_most = search_asked.devices;
    const uint64_t memory = report_budget(options);
    enum error_code e = fewest_open(fewest, options, memory, err);
    if (e) return e;
    const int more = fewest->first < MESH_MOST_DEVICES - FEWEST_TRIES ? fewest->first + FEWEST_TRIES - 1
                                                                       : MESH_MOST_DEVICES;
    const int most = plan_asked.devices_given ? fewest_most : more;
    if (fewest->first > most)
        return fail(err, ERR_CHECK, "--fewest: weights and optimizer state are %s; %d devices of %s have less together",
                    size_format(fewest->state).text, most, size_format(memory).text);
    fewest->of = calloc((size_t)(most - fewest->first) + 1, sizeof *fewest->of);
    if (fewest->of == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d numbers", most);
    for (int n = fewest->first; n <= most && !e && fewest->last == 0; n++) e = fewest_try(fewest, options, n, err);
    if (e || fewest->last > 0) return e;
    return fewest_fail(fewest, most, memory, err);
}

enum { FEWEST_SHOWN = 6 };

static void fewest_print(FILE *out, const struct fewest *fewest, uint64_t memory)
{
    const int left = fewest->count > FEWEST_SHOWN ? fewest->count - FEWEST_SHOWN : 0;
    if (fewest->first > 1)
        say(out, 8, "fewest  1 to %d devices have less memory together than weights and optimizer state take, %s",
            fewest->first - 1, size_format(fewest->state).text);
    if (left > 0)
        say(out, 8, "        %d to %d devices were tried likewise; none fits (--json)", fewest->of[0].devices,
            fewest->of[left - 1].devices);
    for (int i = left; i < fewest->count; i++) {
        const struct tried *t = &fewest->of[i];
        if (t->needs == 0) say(out, 8, "        %d device%s: there is no mesh", t->devices, plural(t->devices));
        else if (t->devices == fewest->last)
            say(out, 8, "        %d device%s: fits, %s takes %s", t->devices, plural(t->devices),
                t->words[0] ? t->words : "one", size_format(t->needs).text);
        else say(out, 8, "        %d device%s: the smallest, %s, needs at least %s and lacks %s", t->devices,
                 plural(t->devices), t->words, size_format(t->needs).text, size_format(t->needs - memory).text);
    }
}

static void fewest_json(cJSON *root, const struct fewest *fewest, uint64_t memory)
{
    cJSON *o = cJSON_AddObjectToObject(root, "fewest"), *list;
    json_add(o, "devices %d memory_bytes %g state_bytes %g below %d", fewest->last, (double)memory,
             (double)fewest->state, fewest->first);
    list = cJSON_AddArrayToObject(o, "tried");
    for (int i = 0; i < fewest->count; i++) {
        const struct tried *t = &fewest->of[i];
        cJSON *row = json_add(json_row(list), "devices %d", t->devices);
        if (t->needs == 0) continue;
        json_add(row, "words %s needs_bytes %g", t->words, (double)t->needs);
        if (t->devices != fewest->last) json_add(row, "lacks_bytes %g", (double)(t->needs - memory));
    }
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

struct chosen { const struct searched *searched; const struct fewest *fewest; char words[2048]; };

static void chosen_print(FILE *out, const void *context)
{
    const struct chosen *const c = context;
    const struct searched *const s = c->searched;
    if (s->shown > 1) {
        say(out, 0, "\nthe next best of those that were planned; plan 1 is the one above");
        searched_print_plans(s, 1, "plan");
    }
    say(out, 8, "again   orrery plan %s", c->words);
}

static void chosen_json(cJSON *root, const void *context)
{
    const struct chosen *const c = context;
    const struct searched *const s = c->searched;
    cJSON *o = cJSON_AddObjectToObject(root, "chosen"), *list;
    json_add(o, "words %s like %s planner %s legal %d above_memory %g planned %g fit %d", c->words, search_asked.like,
             s->planner->name, s->search.count, (double)s->search.over, (double)s->search.planned, s->fit);
    if (s->search.ended) json_add(o, "ended %s", searched_why_ended());
    list = cJSON_AddArrayToObject(o, "plans");
    for (int i = 0; i < s->shown; i++) searched_add_plan(list, s, s->row[i]);
    if (c->fewest) fewest_json(root, c->fewest, s->search.memory);
}

/* Plan the best in full. */
static enum error_code chosen_report(const struct searched *searched, const struct fewest *fewest, struct error *err)
{
    struct chosen chosen = { .searched = searched, .fewest = fewest };
    const struct plan_more more = { chosen_print, chosen_json, &chosen };
    struct train_options o = *searched->options;
    char words[PLAN_WORDS];
    snprintf(chosen.words, sizeof chosen.words, "%s%s%s%s%s", searched_words(searched, 0, words),
             searched->common[0] ? " " : "", searched->common, searched->of_plan[0] ? " " : "", searched->of_plan);
    if (!plan_space_make(&searched->space, &searched->search.of[0].choice, &o.plan))
        return fail(err, ERR_PLAN, "the chosen plan %s is not legal", words);
    if (fewest) fewest_print(searched->out, fewest, searched->search.memory);
    searched_print_head(searched);
    say(searched->out, 8, "chosen  %s\n", words[0] ? words : "one device");
    return plan_step(&o, &more, err);
}

static enum error_code choose_and_plan(const struct train_options *options, struct error *err)
{
    struct fewest fewest = { .state = 0 };
    struct searched s;
    enum error_code e = plan_asked.fewest ? find_fewest(&fewest, options, err) : OK;
    if (plan_asked.fewest) search_asked.devices = fewest.last;
    if (!e) {
        e = searched_open(&s, options, choose_options, err);
        if (!e && plan_asked.fewest) e = searched_begin_with(&s, &fewest.lean, err);
        if (!e) e = searched_run(&s, err);
        if (!e) e = s.ranked == 0 ? searched_nothing_fits(&s, err)
                                  : chosen_report(&s, plan_asked.fewest ? &fewest : NULL, err);
        searched_close(&s);
    }
    free(fewest.of);
    return e;
}

enum error_code choose_plan(int argc, char **argv, struct error *err)
{
    struct train_options o;
    struct machine_words words = { .argv = NULL };
    const struct run_kind kind = { .command = "plan", .without = search_without, .steps = 1, .more = make_options(),
                                   .what = "" };
    static const char *const others[] = { "--against", "--zero-table" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (options_given(argc, argv, others[i]))
            return fail(err, ERR_USAGE, "%s: is for a plan that is given, not for one that is chosen", others[i]);
    enum error_code e = machine_parse(&words, &o, &kind, &search_asked.devices, argc, argv, err);
    if (!e && !o.help && launcher_rank() == 0) e = choose_and_plan(&o, err);
    train_options_free(&o);
    free(words.argv);
    return e;
}
