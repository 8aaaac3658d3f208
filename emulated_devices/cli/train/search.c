/* search.c -- `orrery search`: the best plans of a number of devices.  cli/main.c calls command_search(); choose.c
 * searches for `orrery plan`.  Plans go to the standard output as a table, or as JSON (search_report.c).  ERR_CHECK
 * means that no plan fits into the memory; other errors are those of a search.  Without memory the code is
 * ERR_MEMORY. */
#include "emulated_devices/cli/train/layered.h"
#include "emulated_devices/cli/train/machine.h"
#include "emulated_devices/cli/train/search_report.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/run/report/report.h"
#include "emulated_devices/launch/stopping.h"
#include "emulated_devices/weather/learner.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include "ref/machine/measure.h"
#include "ref/model/kinds.h"
#include <stdlib.h>
#include <string.h>

/* Options of a run that has numbers, or of one plan.  --data and --seed stay, since they say which samples of --pack a
 * step has. */
const char *const search_without[] = {
    WEATHER_OPTIONS, "--sample", "--check", "--dump", "--dump-passes", "--dump-steps", "--isolate", "--paranoid",
    "--record",
    "--disturb",
    "--backend", "--direct",
    "--wait-limit", "--threads",
    "--save", "--sharded", "--save-async", "--lose", "--elastic", "--save-every", "--keep",
    "--log", "--log-every", "--tensorboard",
    "--eval-every", "--owners-out",
    "--save-load", "--resume", "--override", "--lr", "--min-lr", "--warmup", "--lr-steps", "--lr-schedule",
    "--lr-decay", "--weight-decay", "--beta1", "--beta2", "--eps", "--trace", "--trace-steps",
    "--trace-format", "--timeline", "--page", "--page-steps", "--film",
    "--live", "--modalities", "--clips-of", "--encoders", "--bridge-chunks", "--encoder-slack", "--steps",
    "--batches", "--unfolded", "--print-config", "--dry-run", "--from",
    "--dp", "--tp", "--pp", "--cp", "--ep", "--etp", "--tensor", "--attention", "--head-parallel", "--ring-window",
    "--context-first", "--dispatch", "--degree", "--row-parts", "--copies",
    "--copies-to-all", "--copy-again", "--owners", "--affinity", "--recompute", "--schedule", "--chunks", "--skip",
    "--update-every", "--micro", "--data-parallel", "--zero", "--shards", "--local-steps", "--outer-lr",
    "--outer-momentum", "--micro-tokens", "--offload", "--placement", "--perturb", "--stage-layers", NULL
};

/* Both commands say anew what they search by default. */
struct search_asked search_asked = { .like = LIKES_USUAL, .top = 5 };

#define SEARCH_OUT { "--out", "FILE", OPTION_STRING, &search_asked.out, .help = "write the first plan as a file for " \
                    "`orrery train --config` and `orrery plan --config`" }
#define LIST(flag, to, what) { flag, "LIST", OPTION_STRING, &(search_asked.to), .help = what "; default: all" }
const struct option search_options[] = {
    { .kind = OPTION_HEADING, .help = "Search: words of a list have commas between" },
    { "--devices", "N", OPTION_INT, &search_asked.devices, .min = 1, .max = MESH_MOST_DEVICES,
      .help = "all of them are used (required, but with --table)" },
    { "--like", "LIST", OPTION_STRING, &search_asked.like, .given = &search_asked.like_given,
      .help = "only schemes that these frameworks have (`orrery list likes`), where no list below says which; with "
              "--pack also attention schemes that plan by lengths; all: every scheme" },
    { "--seconds", "S", OPTION_DOUBLE, &search_asked.seconds, .min = 0, .max = 1e9,
      .help = "end after S seconds with the best plans so far, as Ctrl-C and SIGTERM do; 0: search to the end" },
    { "--planner", "NAME", OPTION_STRING, &search_asked.planner,
      .help = "how plans are chosen: `orrery list planners`; all: every planner by layers, side by side; default: "
              "exhaustive for up to 2000 legal plans, else beam" },
    { "--explain", NULL, OPTION_SWITCH, &search_asked.explain,
      .help = "with planners by layers: say every plan, and what it spends more than the first" },
    { "--table", "FILE", OPTION_STRING, &search_asked.table,
      .help = "planners by layers take what layers need from a file, not from a model (docs/plans/planners.md)" },
    { "--table-out", "FILE", OPTION_STRING, &search_asked.table_out,
      .help = "write the table of layers and strategies that such planners get; - for stdout" },
    { "--page", "FILE", OPTION_STRING, &search_asked.page,
      .help = "with planners by layers: write a page of HTML with their plans, the frontier of time and memory, and "
              "the first plan's pipeline" },
    { "--plans", "N", OPTION_INT, &search_asked.plans, .min = 1, .max = 1e6, .given = &search_asked.plans_given,
      .help = "how many of them are planned, the most promising first; default: the planner's" },
    { "--top", "N", OPTION_INT, &search_asked.top, .min = 1, .max = 1000, .help = "different plans that are printed" },
    SEARCH_OUT,
    LIST("--dp", space.sizes[DP], "copies of the model"),
    LIST("--tp", space.sizes[TP], "parts of each layer"),
    LIST("--pp", space.sizes[PP], "pipeline stages"),
    LIST("--cp", space.sizes[CP], "parts of each sequence"),
    LIST("--ep", space.sizes[EP], "parts of each layer's experts"),
    LIST("--micro", space.only[BY_MICROS], "numbers of microbatches of a copy"),
    LIST("--recompute", space.only[BY_RECOMPUTE], "what is recomputed: none, selective, selective++, full"),
    LIST("--tensor", space.only[BY_TENSOR], "schemes over tp"),
    LIST("--attention", space.only[BY_ATTENTION], "schemes over cp"),
    { "--head-parallel", "LIST", OPTION_STRING, &search_asked.space.only[BY_SPLIT],
      .help = "devices along cp that exchange tokens for heads, of schemes that --attention names; default: all" },
    { "--ring-window", "LIST", OPTION_STRING, &search_asked.space.windows,
      .help = "likewise devices of an inner ring; default: all" },
    { "--context-first", NULL, OPTION_SWITCH, &search_asked.space.context_first,
      .help = "likewise only plans whose neighbours are on one ring; default: both placements" },
    LIST("--dispatch", space.only[BY_EXPERTS], "schemes over ep"),
    LIST("--data-parallel", space.only[BY_DATA], "schemes over dp"),
    { "--zero", "LIST", OPTION_STRING, &search_asked.zero, .help = "stages of ZeRO, 0 to 3: ddp, zero1, zero2, zero3" },
    LIST("--schedule", space.only[BY_SCHEDULE], "schedules over pp"),
    { "--stage-layers", "LIST", OPTION_STRING, &search_asked.space.only[BY_STAGES],
      .help = "layers of the stages of a pipeline: even, embedding, loss, ends; or those of each stage, 7,8,8,7, for "
              "all plans; default: even" },
    LIST("--chunks", space.only[BY_CHUNKS],
         "stages on each device of a pipeline, where the schedule leaves it free"),
    { "--offload", "LIST", OPTION_STRING, &search_asked.space.only[BY_OFFLOAD],
      .help = "what is on the host: none, optimizer; default: none" },
    { 0 }
};

static const struct run_kind run_search = {
    .command = "search", .without = search_without, .steps = 1, .more = search_options,
    .what = "The best plans of a number of devices: of all legal meshes, schemes, schedules and numbers of\n"
            "microbatches, those with which a training step takes the least virtual time and a device needs no more\n"
            "than --memory, or else its cluster's. Each that is printed can be run with `orrery train`, in that time.\n"
            "With --pack the step is the first of a run with the same lengths, --data and --seed.\n"
            "The exit status is 3 if no plan fits.",
};

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* The option of a table that a word names; its last line: the word is none of them. */
static const struct option *named_by(const struct option *table, const char *word)
{
    const size_t name = strcspn(word, "=");
    while (table->kind != OPTION_END && (table->name == NULL || strlen(table->name) != name ||
                                         strncmp(table->name, word, name) != 0)) table++;
    return table;
}

static void add_word(char *text, size_t size, const char *word)
{
    const size_t used = strlen(text);
    if (used + strlen(word) + 2 < size) snprintf(text + used, size - used, "%s%s", used ? " " : "", word);
}

void searched_each_common(const struct searched *searched, void (*f)(void *, const char *word), void *context)
{
    for (int i = 0; i < searched->options->argc; i++)
        if (searched->of_all[i]) f(context, searched->options->argv[i]);
    if (searched->options->plan.model.mlp == MLP_MIXTURE && searched->options->load_word == NULL)
        f(context, "--load"), f(context, "even");
}

static void add_common(void *searched, const char *word)
{
    struct searched *const s = searched;
    add_word(s->common, sizeof s->common, word);
}

/* Find the words of the command line that are of `orrery train`, too, or of `orrery plan` alone.
 * own: the options of the search. */
static void take_common(struct searched *searched, const struct option *own)
{
    static const struct option json[] = { { .name = "--json", .argument = "FILE", .kind = OPTION_STRING }, { 0 } };
    static const struct option of_plan[] = {
        { .name = "--memory", .argument = "SIZE", .kind = OPTION_SIZE },
        { .name = "--tokens", .argument = "N", .kind = OPTION_COUNT },
        { .name = "--mtbf", .argument = "HOURS", .kind = OPTION_DOUBLE },
        { .name = "--device-mtbf", .argument = "HOURS", .kind = OPTION_DOUBLE },
        { .name = "--restart", .argument = "SECONDS", .kind = OPTION_DOUBLE },
        { .name = "--storage", .argument = "SIZE", .kind = OPTION_SIZE },
        { .name = "--checkpoint", .argument = "HOW", .kind = OPTION_STRING },
        { .name = "--checkpoint-every", .argument = "STEPS", .kind = OPTION_COUNT }, { 0 }
    };
    const struct train_options *o = searched->options;
    for (int i = 0; i < o->argc; i++) {
        const char *const word = o->argv[i];
        const struct option *left_out = named_by(own, word), *const plan = named_by(of_plan, word);
        if (left_out->kind == OPTION_END) left_out = named_by(json, word);
        const struct option *const of = left_out->kind != OPTION_END ? left_out : plan;
        const bool two = of->kind != OPTION_END && of->argument && strchr(word, '=') == NULL && i + 1 < o->argc;
        searched->of_all[i] = of->kind == OPTION_END;
        if (of == plan && of->kind != OPTION_END) {
            add_word(searched->of_plan, sizeof searched->of_plan, word);
            if (two) add_word(searched->of_plan, sizeof searched->of_plan, o->argv[i + 1]);
        }
        i += two;                                       /* its value is the next word */
    }
    searched_each_common(searched, add_common, searched);
}

/* Stages of ZeRO are names of data schemes: "0,3" is ddp,zero3. */
static enum error_code take_zero(struct searched *searched, struct error *err)
{
    static const char *const names[] = { "ddp", "zero1", "zero2", "zero3" };
    const char *const list = search_asked.zero;
    if (list == NULL) return OK;
    if (searched->space.only[BY_DATA])
        return fail(err, ERR_USAGE, "--zero %.20s: --data-parallel says it already; give one of them", list);
    for (const char *at = list; ; at += 2) {
        if (*at < '0' || *at > '3' || (at[1] != ',' && at[1] != '\0') || strlen(list) > 7)
            return fail(err, ERR_USAGE, "--zero %.20s: must be stages from 0 to 3 with commas between, such as 1,3",
                        list);
        strcat(strcat(searched->data, at > list ? "," : ""), names[*at - '0']);
        if (at[1] == '\0') break;
    }
    searched->space.only[BY_DATA] = searched->data;
    return OK;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The line changes with each percent, and with each better plan. */
static void see_search(void *context, const char *doing, double part)
{
    struct searched *r = context;
    const struct candidate *best = search_best(&r->search);
    char what[80] = "";
    if (best && r->answered <= 0) r->answered = measure_now() - r->started;
    if (!r->line.shown) return;
    if (best) snprintf(what, sizeof what, "best so far %s a step", picoseconds_format((double)best->time).text);
    time_left_show(&r->line, part, doing, what);
}

static bool search_is_over(void *context)
{
    const struct searched *r = context;
    return stopping_asked() != 0 || (search_asked.seconds > 0 && measure_now() - r->started >= search_asked.seconds);
}

/* A signal ends it at once.  After --seconds, the first plan is still planned, so that there is an answer. */
static bool search_is_asked(void *context)
{
    const struct searched *r = context;
    return stopping_asked() != 0 || (search_is_over(context) && search_best(&r->search));
}

enum error_code searched_open(struct searched *searched, const struct train_options *options, const struct option *own,
                              struct error *err)
{
    struct plan_space *const space = &searched->space;
    *searched = (struct searched){ .options = options, .out = run_stream(options), .space = search_asked.space };
    /* Who names a scheme gets its best arrangement, too. */
    space->splits = space->only[BY_ATTENTION] != NULL, space->shards = space->only[BY_DATA] != NULL;
    searched->search.space = space;
    space->base = &options->plan, space->devices = search_asked.devices;
    const bool layers = layered_asked(), named = search_asked.planner && strcmp(search_asked.planner, PLANNER_ALL);
    enum error_code e = named ? planner_find(&searched->planner, search_asked.planner, err) : OK;
    if (!e && search_asked.devices == 0 && search_asked.table == NULL)
        e = fail(err, ERR_USAGE, "search needs --devices N: all of them are used");
    if (!e && search_asked.table) return searched->search.memory = options->memory, OK;
    if (!e) e = cluster_check(&options->cluster, search_asked.devices, options->plan.dtype, err);
    if (!e) e = take_zero(searched, err);
    if (!e) e = likes_limit(space, &searched->likes, search_asked.like, err);
    /* No framework of the rows plans by lengths; who gives lengths asks what that would save. */
    if (!e && options->plan.lengths) likes_add_planning(space, &searched->likes);
    if (!e) e = plan_space_open(space, err);
    searched->of_all = calloc((size_t)options->argc + 1, sizeof *searched->of_all);
    if (!e && searched->of_all == NULL) e = fail(err, ERR_MEMORY, "no memory for %d words", options->argc);
    if (e) return e;
    searched->search.memory = report_budget(options);
    if (layers) return take_common(searched, own), OK;
    if (searched->planner == NULL) searched->planner = planner_usual(space);
    searched->search.most = search_asked.plans_given ? search_asked.plans : searched->planner->most;
    /* Who says how long, or how many plans, gets that. */
    searched->search.work_most = search_asked.plans_given || search_asked.seconds > 0 ? 0 : searched->planner->work;
    take_common(searched, own);
    return OK;
}

void searched_close(struct searched *searched)
{
    free(searched->frontier), free(searched->first), free(searched->row), free(searched->of_all);
    search_close(&searched->search);
    plan_space_close(&searched->space);
}

/* Replayed beside the plans of --top, at most: each takes as long as `orrery plan`, without folding. */
enum { MOST_REPLAYS = 27 };

enum error_code searched_run(struct searched *searched, struct error *err)
{
    struct search *const s = &searched->search;
    if (searched->planner == NULL || searched->planner->choose == NULL)
        return fail(err, ERR_USAGE, "--planner %s: gives layers strategies of their own; orrery search takes it",
                    search_asked.planner);
    searched->started = measure_now();
    time_left_begin(&searched->line);
    stopping_listen(true);
    s->tell = see_search, s->ends = search_is_over, s->context = searched;
    s->stop = (struct crew_stop){ search_is_asked, searched };
    enum error_code e = searched->planner->choose(s, err);
    if (!e) e = search_rank(s, &searched->ranked, err);
    searched->fit = searched->ranked;
    if (!e) e = search_replay(s, search_asked.top, search_asked.top + MOST_REPLAYS, &searched->ranked,
                              &searched->beaten, err);
    time_left_end(&searched->line);
    searched->seconds = measure_now() - searched->started;
    return e || searched->ranked == 0 ? e : searched_make_rows(searched, err);
}

enum error_code searched_leanest(struct searched *searched, int *place, struct error *err)
{
    searched->started = measure_now();
    stopping_listen(true);
    searched->search.ends = search_is_over, searched->search.context = searched;
    searched->search.stop = (struct crew_stop){ search_is_asked, searched };
    return search_leanest(&searched->search, place, err);
}

enum error_code searched_begin_with(struct searched *searched, const struct choice *choice, struct error *err)
{
    struct plan p;
    int place;
    if (!plan_space_make(&searched->space, choice, &p)) return OK;
    const enum error_code e = search_add(&searched->search, &p, choice, true, &place, err);
    return e ? e : search_plan_now(&searched->search, place, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code search_and_report(struct searched *searched, struct error *err)
{
    const char *const json = searched->options->json;
    enum error_code e = searched_run(searched, err);
    if (e) return e;
    if (searched->ranked == 0) {
        if (searched->search.count > 0 && json) e = searched_json(searched, err);
        return e ? e : searched_nothing_fits(searched, err);
    }
    searched_print(searched);
    if (search_asked.out) e = searched_write(searched, search_asked.out, err);
    if (e) return e;
    return json ? searched_json(searched, err) : OK;
}

enum error_code command_search(int argc, char **argv, int *status, struct error *err)
{
    struct train_options o;
    struct machine_words words = { .argv = NULL };
    (void)status;
    enum error_code e = machine_parse(&words, &o, &run_search, &search_asked.devices, argc - 2, argv + 2, err);
    if (!e && !o.help && launcher_rank() == 0) {
        struct searched s;
        e = searched_open(&s, &o, search_options, err);
        /* A file that cannot be written is said before the search. */
        if (!e && search_asked.out) e = fail_about(err, output_probe(search_asked.out, err), "--out");
        if (!e && search_asked.page && !layered_asked())
            e = fail(err, ERR_USAGE, "--page: a page of a search shows planners by layers; take --planner all, or "
                     "orrery plan --page for the page of one plan");
        if (!e && search_asked.page) e = fail_about(err, output_probe(search_asked.page, err), "--page");
        if (!e) e = layered_asked() ? layered_run(&s, err) : search_and_report(&s, err);
        searched_close(&s);
    }
    train_options_free(&o);
    free(words.argv);
    return e;
}
