/* search.c -- `orrery search`: the best plans of a number of devices.  cli/main.c calls command_search().  Plans go
 * to the standard output as a table, or as JSON.  ERR_CHECK means that no plan fits into the memory; other errors are
 * those of a search.  Without memory the code is ERR_MEMORY. */
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/run/run.h"
#include "emulated_devices/run/report/plan_report.h"
#include "emulated_devices/launch/stopping.h"
#include "emulated_devices/search/likes.h"
#include "emulated_devices/search/planner.h"
#include "ref/io/json.h"
#include "ref/machine/measure.h"
#include "ref/io/time_left.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include "ref/model/kinds.h"
#include <stdlib.h>
#include <string.h>

/* Options of a run that has numbers, or of one plan. */
static const char *const of_one_plan[] = {
    "--data", "--pack", "--sample", "--check", "--dump", "--dump-passes", "--dump-steps", "--isolate", "--paranoid",
    "--backend", "--direct",
    "--wait-limit", "--threads",
    "--save", "--save-every", "--keep", "--log", "--log-every", "--tensorboard", "--eval-every", "--owners-out",
    "--save-load", "--resume", "--override", "--lr", "--min-lr", "--warmup", "--lr-steps", "--lr-schedule",
    "--lr-decay", "--weight-decay", "--seed", "--trace", "--trace-steps", "--trace-format", "--timeline",
    "--modalities", "--encoders", "--bridge-chunks", "--encoder-slack", "--steps", "--batches", "--unfolded",
    "--print-config", "--dry-run", "--from",
    "--dp", "--tp", "--pp", "--cp", "--ep", "--etp", "--tensor", "--attention", "--dispatch", "--degree", "--copies",
    "--copies-to-all", "--copy-again", "--owners", "--affinity", "--recompute", "--schedule", "--chunks", "--skip",
    "--update-every", "--micro", "--data-parallel", "--zero", "--shards", "--local-steps", "--outer-lr",
    "--outer-momentum", "--offload", "--placement", "--perturb", NULL
};

/* This holds what the command line says besides. */
static struct {
    int devices, plans, top;
    const char *planner, *like;
    double seconds;                     /* at most; 0: without end */
    bool plans_given, like_given;
    struct plan_space space;
    struct likes likes;
} asked;

#define LIST(flag, to, what) { flag, "LIST", OPTION_STRING, &(to), .help = what "; default: all" }
static const struct option own_options[] = {
    { .kind = OPTION_HEADING, .help = "Search: words of a list have commas between" },
    { "--devices", "N", OPTION_INT, &asked.devices, .min = 1, .max = MESH_MOST_DEVICES, .required = true,
      .help = "all of them are used" },
    { "--like", "LIST", OPTION_STRING, &asked.like, .given = &asked.like_given,
      .help = "only schemes that these frameworks have (`orrery list likes`), where no list below says which; all: "
              "every scheme" },
    { "--seconds", "S", OPTION_DOUBLE, &asked.seconds, .min = 0, .max = 1e9,
      .help = "end after S seconds with the best plans so far, as Ctrl-C and SIGTERM do; 0: search to the end" },
    { "--planner", "NAME", OPTION_STRING, &asked.planner,
      .help = "how plans are chosen: `orrery list planners`; default: exhaustive for up to 2000 legal plans, else "
              "beam" },
    { "--plans", "N", OPTION_INT, &asked.plans, .min = 1, .max = 1e6, .given = &asked.plans_given,
      .help = "how many of them are planned, the most promising first; default: the planner's" },
    { "--top", "N", OPTION_INT, &asked.top, .min = 1, .max = 1000, .help = "different plans that are printed" },
    LIST("--dp", asked.space.sizes[DP], "copies of the model"),
    LIST("--tp", asked.space.sizes[TP], "parts of each layer"),
    LIST("--pp", asked.space.sizes[PP], "pipeline stages"),
    LIST("--cp", asked.space.sizes[CP], "parts of each sequence"),
    LIST("--ep", asked.space.sizes[EP], "parts of each layer's experts"),
    LIST("--micro", asked.space.only[BY_MICROS], "numbers of microbatches of a copy"),
    LIST("--recompute", asked.space.only[BY_RECOMPUTE], "what is recomputed: none, selective, selective++, full"),
    LIST("--tensor", asked.space.only[BY_TENSOR], "schemes over tp"),
    LIST("--attention", asked.space.only[BY_ATTENTION], "schemes over cp"),
    LIST("--dispatch", asked.space.only[BY_EXPERTS], "schemes over ep"),
    LIST("--data-parallel", asked.space.only[BY_DATA], "schemes over dp"),
    LIST("--schedule", asked.space.only[BY_SCHEDULE], "schedules over pp"),
    LIST("--chunks", asked.space.only[BY_CHUNKS], 
         "stages on each device of a pipeline, where the schedule leaves it free"),
    { "--offload", "LIST", OPTION_STRING, &asked.space.only[BY_OFFLOAD],
      .help = "what is on the host: none, optimizer; default: none" },
    { 0 }
};

static const struct run_kind run_search = {
    .command = "search", .without = of_one_plan, .steps = 1, .more = own_options,
    .what = "The best plans of a number of devices: of all legal meshes, schemes, schedules and numbers of\n"
            "microbatches, those with which a training step takes the least virtual time and a device needs no more\n"
            "than --memory, or else its cluster's. Each that is printed can be run with `orrery train`, in that time.\n"
            "The exit status is 3 if no plan fits.",
};

/* ---- the report -------------------------------------------------------------------------------------------------- */

struct report {
    const struct train_options *options;
    struct search search;
    const struct planner *planner;
    int fit, ranked, *frontier, frontiers;      /* ranked: of those that fit, the ones that are compared */
    int *first;                         /* [ranked] the first plan of each one's group (search_group) */
    int *row, rows, shown;              /* [rows] the first plans of all groups; the first `shown` are printed */
    bool beaten;                        /* the others take longer by the clocks (search_replay) */
    double started, seconds;            /* by the clock; of the search */
    struct time_left line;              /* on the terminal */
    char common[1024];                  /* words that all plans have */
    FILE *out;
};

/* The place of a row's first plan, and the row of a place. */
static const struct candidate *in_row(const struct report *report, int row)
{
    return &report->search.of[report->row[row]];
}
static int search_row_of(const struct report *report, int place)
{
    int row = 0;
    while (report->row[row] != report->first[place]) row++;
    return row;
}

static enum error_code make_rows(struct report *report, struct error *err)
{
    const size_t n = (size_t)report->ranked;
    report->frontier = calloc(n, sizeof *report->frontier), report->first = calloc(n, sizeof *report->first);
    report->row = calloc(n, sizeof *report->row);
    if (!report->frontier || !report->first || !report->row)
        return fail(err, ERR_MEMORY, "no memory for a list of plans");
    report->frontiers = search_frontier(report->search.of, report->ranked, report->frontier);
    search_group(report->search.of, report->ranked, report->first);
    for (int i = 0; i < report->ranked; i++)
        if (report->first[i] == i) report->row[report->rows++] = i;
    report->shown = report->rows < asked.top ? report->rows : asked.top;
    return OK;
}

static const char *words_of(const struct report *report, int place, char *text)
{
    struct plan p;
    plan_space_make(report->search.space, &report->search.of[place].choice, &p);
    return plan_space_words(&p, text, PLAN_WORDS);
}

static double percent_of(picoseconds part, const struct candidate *candidate)
{
    return candidate->time > 0 ? 100 * (double)part / (double)candidate->time : 0;
}

static const char *why_ended(void)
{
    return stopping_asked() ? stopping_name(stopping_asked()) : "--seconds";
}

static void search_print_head(const struct report *report)
{
    const struct train_options *o = report->options;
    const struct search *s = &report->search;
    say(report->out, 8, "search  %d devices of %s for %s in %s: %lld sequences of %lld tokens a step, %s a device",
        s->space->devices, o->cluster.name, o->plan.model.name, dtype_name(o->plan.dtype), (long long)o->plan.B,
        (long long)o->plan.S, s->memory ? memory_format(s->memory).text : "any memory");
    say(report->out, 8, "looked  at %d legal plans (%s: %s)", s->count, report->planner->name,
        report->planner->description);
    if (strcmp(asked.like, LIKES_ALL) != 0)
        say(report->out, 8, "        of schemes as in %s%s", asked.like,
            asked.like_given ? "" : "; --like all takes every scheme");
    say(report->out, 8,
        "        a lower bound says of %lld that they need more memory; %lld were planned, and %d of these fit",
        (long long)s->over, (long long)s->planned, report->fit);
    if (s->ended)
        say(report->out, 8, "        ended early, %s: the first is the best so far", why_ended());
    else say(report->out, 8, "        so %s", s->planned + s->over < s->count
        ? "of those planned the first is the fastest; the others were only estimated" : report->planner->promise);
    if (cluster_replays(&report->options->cluster))
        say(report->out, 8, "        %d of them were replayed with sharing and contention: %s", report->ranked,
            report->beaten ? "the others are slower even without it"
                : "without it, others are faster than some of these");
}

/* The units of the times and sizes of all ranked plans. */
struct units { struct figure_scale time, size; };

static struct units units_of(const struct report *report)
{
    picoseconds longest = 0;
    uint64_t most = 0;
    for (int i = 0; i < report->ranked; i++) {
        const struct candidate *c = &report->search.of[i];
        longest = c->time > longest ? c->time : longest, most = c->peak > most ? c->peak : most;
    }
    return (struct units){ time_scale(1e-12 * (double)longest), size_scale(most) };
}

static struct figure time_in(const struct units *units, picoseconds time)
{
    return scale_format(&units->time, 1e-12 * (double)time);
}

static void add_percent(struct columns *columns, const struct candidate *candidate, picoseconds part)
{
    if (candidate->share_known) columns_add(columns, RIGHT_ALIGNED, "%.1f", percent_of(part, candidate));
    else columns_add(columns, RIGHT_ALIGNED, "-");
}

/* Plans of a row's group besides its first: those that are equal to the first, or the others. */
static void print_group(const struct report *report, int row, bool equal, const char *title)
{
    enum { MOST = 3 };
    const int at = report->row[row];
    char list[MOST * PLAN_WORDS] = "", more[64] = "", text[PLAN_WORDS];
    struct plan first, p;
    int n = 0;
    plan_space_make(report->search.space, &report->search.of[at].choice, &first);
    for (int i = at + 1; i < report->ranked; i++) {
        if (report->first[i] != at || search_equal(&report->search.of[i], &report->search.of[at]) != equal
            || ++n > MOST) continue;
        plan_space_make(report->search.space, &report->search.of[i].choice, &p);
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? "; " : "",
                 plan_space_difference(&first, &p, text, sizeof text));
    }
    if (n > MOST) snprintf(more, sizeof more, "; and %d more (--json)", n - MOST);
    if (n > 0) say(report->out, 6, "      %s: %s%s", title, list, more);
}

static void print_words(const struct report *report)
{
    char text[PLAN_WORDS], near[80];
    snprintf(near, sizeof near, "less than %g %% slower, saves less than %g %% of memory", 100 * SEARCH_NEAR,
             100 * SEARCH_NEAR);
    for (int i = 0; i < report->shown; i++) {
        say(report->out, 6, "%4d  %s", i + 1, words_of(report, report->row[i], text));
        print_group(report, i, true, "the same time, memory and bytes");
        print_group(report, i, false, near);
    }
    say(report->out, 6, "      each behind: orrery train%s%s", report->common[0] ? " " : "", report->common);
}

static void print_plans(const struct report *report)
{
    const struct units u = units_of(report);
    struct columns t = columns_start(report->out);
    bool known = true;
    fprintf(report->out, "\n");
    do {
        static const char *const titles[] = { "compute %", "exposed %", "bubble %" };
        columns_add(&t, RIGHT_ALIGNED, "plan"), columns_add(&t, RIGHT_ALIGNED, "%s a step", u.time.name);
        columns_add(&t, RIGHT_ALIGNED, "peak %s", u.size.name);
        for (int i = 0; i < 3; i++) columns_add(&t, RIGHT_ALIGNED, "%s", titles[i]);
        columns_end_row(&t);
        for (int i = 0; i < report->shown; i++) {
            const struct candidate *c = in_row(report, i);
            columns_add(&t, RIGHT_ALIGNED, "%d", i + 1);
            columns_add(&t, RIGHT_ALIGNED, "%s", time_in(&u, c->time).text);
            columns_add(&t, RIGHT_ALIGNED, "%s", scale_format(&u.size, (double)c->peak).text);
            add_percent(&t, c, c->share.computing);
            add_percent(&t, c, step_share_exposed(&c->share));
            add_percent(&t, c, step_share_bubble(&c->share));
            columns_end_row(&t);
            known = known && c->share_known;
        }
    } while (columns_again(&t));
    if (!known) say(report->out, 6, "   -  not known: a step of this plan has too many events to keep");
    fprintf(report->out, "\n");
    print_words(report);
}

/* A difference of times, with its sign. */
static struct figure change_of(picoseconds more)
{
    const struct figure size = picoseconds_format((double)more);
    struct figure change;
    snprintf(change.text, sizeof change.text, "%s%.30s", more > 0 ? "+" : "", size.text);
    return change;
}

/* This is what the other plan spends more on each thing; together it is the difference of their times, but for
 * rounding. */
static void print_why(const struct report *report, int other)
{
    const struct candidate *a = in_row(report, 0), *b = in_row(report, other);
    char kinds[300] = "", words[PLAN_WORDS + 16] = "", text[PLAN_WORDS];
    int used = 0;
    if (other >= report->shown) snprintf(words, sizeof words, " (%s)", words_of(report, report->row[other], text));
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++) {
        const picoseconds more = b->share.waiting[k] - a->share.waiting[k];
        if (k == TRAFFIC_PIPELINE || k == TRAFFIC_RESULT || more == 0 || used > 200) continue;
        used += snprintf(kinds + used, sizeof kinds - (size_t)used, "%s%s %s", used ? ", " : " (",
                         traffic_kind_name(k), change_of(more).text);
    }
    say(report->out, 8, "why     plan %d%s takes %s more than plan 1, %.2f %%%s", other + 1, words,
        picoseconds_format((double)(b->time - a->time)).text, 100 * ((double)b->time / (double)a->time - 1),
        a->share_known && b->share_known ? ":" : "; on what is not known");
    if (!a->share_known || !b->share_known) return;
    say(report->out, 8, "        computing %s, bubble %s, exposed communication %s%s%s",
        change_of(b->share.computing - a->share.computing).text,
        change_of(step_share_bubble(&b->share) - step_share_bubble(&a->share)).text,
        change_of(step_share_exposed(&b->share) - step_share_exposed(&a->share)).text, kinds, used ? ")" : "");
}

/* The first row that takes longer than the winner; the first of those on another mesh; 0: there is none. */
static int slower(const struct report *report)
{
    int i = 1;
    while (i < report->rows && in_row(report, i)->time == in_row(report, 0)->time) i++;
    return i < report->rows ? i : 0;
}
static int other_mesh(const struct report *report)
{
    const int mesh = in_row(report, 0)->choice.value[BY_MESH];
    int i = slower(report);
    while (i > 0 && i < report->rows && in_row(report, i)->choice.value[BY_MESH] == mesh) i++;
    return i < report->rows ? i : 0;
}

static void print_frontier(const struct report *report)
{
    const struct units u = units_of(report);
    char text[PLAN_WORDS];
    if (report->frontiers < 2) return;
    fprintf(report->out, "\nless memory for more time, of the plans that were planned\n");
    for (int i = 0; i < report->frontiers; i++) {
        const struct candidate *c = &report->search.of[report->frontier[i]];
        say(report->out, 28, "%9s %-2s  %7s %-3s  %s", time_in(&u, c->time).text, u.time.name,
            scale_format(&u.size, (double)c->peak).text, u.size.name, words_of(report, report->frontier[i], text));
    }
}

static void print_report(const struct report *report)
{
    search_print_head(report);
    print_plans(report);
    fprintf(report->out, "\n");
    if (slower(report) > 0) print_why(report, slower(report));
    if (other_mesh(report) > slower(report)) print_why(report, other_mesh(report));
    print_frontier(report);
    fprintf(report->out, "searched in %s\n", time_format(report->seconds).text);
}

/* ---- the smallest ----------------------------------------------------------------------------------------------- */

/* That needs least, as far as is known. */
static int smallest(const struct search *search)
{
    int least = 0;
    for (int i = 1; i < search->count; i++)
        if (search->of[i].least > 0 && (search->of[least].least == 0 || search->of[i].least < search->of[least].least))
            least = i;
    return least;
}

static uint64_t needs_of(const struct candidate *candidate)
{
    return candidate->peak > candidate->least ? candidate->peak : candidate->least;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_candidate(cJSON *list, const struct report *report, int place)
{
    const struct candidate *c = &report->search.of[place];
    cJSON *o = cJSON_CreateObject(), *exposed;
    char text[PLAN_WORDS];
    cJSON_AddItemToArray(list, o);
    json_add(o, "words %s group %d virtual_step_ps %g", words_of(report, place, text), search_row_of(report, place) + 1,
             (double)c->time);
    if (c->clocks > 0) json_add(o, "virtual_step_by_clocks_ps %g", (double)c->clocks);
    json_add(o, "peak_bytes %g least_bytes %g", (double)c->peak, (double)c->least);
    if (c->estimate > 0) json_add(o, "estimated_step_ps %g", (double)c->estimate);
    json_add(o, "sent_bytes %g", (double)c->sent);
    if (!c->share_known) return;
    json_add(o, "computing_ps %g exposed_ps %g bubble_ps %g", (double)c->share.computing,
             (double)step_share_exposed(&c->share), (double)step_share_bubble(&c->share));
    exposed = cJSON_AddObjectToObject(o, "waiting_ps");
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
        cJSON_AddNumberToObject(exposed, traffic_kind_name(k), (double)c->share.waiting[k]);
}

/* Where nothing fits. */
static void add_smallest(cJSON *root, const struct report *report)
{
    char text[PLAN_WORDS];
    const int at = smallest(&report->search);
    json_add(cJSON_AddObjectToObject(root, "smallest"), "words %s needs_bytes %g", words_of(report, at, text),
             (double)needs_of(&report->search.of[at]));
}

static enum error_code search_write_json(const struct report *report, struct error *err)
{
    const struct search *s = &report->search;
    cJSON *root = document_start("orrery search"), *plans, *frontier;
    json_add(root, "model %s cluster %s devices %d memory_bytes %g batch %g seq %g words %s planner %s legal %d"
             " above_memory %g planned %g fit %d replayed %d others_beaten %hhd all_planned %hhd like %s",
             report->options->plan.model.name, report->options->cluster.name, s->space->devices, (double)s->memory,
             (double)report->options->plan.B, (double)report->options->plan.S, report->common, report->planner->name,
             s->count, (double)s->over, (double)s->planned, report->fit,
             report->fit == 0 || report->search.of[0].clocks == 0 ? 0 : report->ranked, report->beaten,
             (bool)(s->planned + s->over >= s->count && !s->ended), asked.like);
    if (s->ended) json_add(root, "ended %s", why_ended());
    plans = cJSON_AddArrayToObject(root, "plans");
    for (int i = 0; i < report->ranked; i++)
        if (search_row_of(report, i) < report->shown) add_candidate(plans, report, i);
    frontier = cJSON_AddArrayToObject(root, "frontier");
    for (int i = 0; i < report->frontiers; i++) add_candidate(frontier, report, report->frontier[i]);
    if (report->fit == 0) add_smallest(root, report);
    return fail_about(err, json_finish(report->options->json, root, err), "--json");
}

/* ---- nothing fits ------------------------------------------------------------------------------------------------ */

static enum error_code nothing_fits(const struct report *report, struct error *err)
{
    const struct search *s = &report->search;
    char words[PLAN_WORDS], more[64] = "and was not planned (--plans)";
    struct plan p;
    if (s->ended)
        return fail(err, ERR_CHECK, "%s: none of the %d plans that were looked at until then fits", why_ended(),
                    s->count);
    if (s->count == 0) return plan_space_explain(s->space, err);
    const int at = smallest(s);
    const uint64_t needs = needs_of(&s->of[at]);
    struct plan_space wider = *s->space;
    struct change change[3];
    int n = 0;
    wider.only[BY_OFFLOAD] = "none,optimizer";
    if (plan_space_make(s->space, &s->of[at].choice, &p)) n = search_changes(&wider, &p, s->memory, change, 3);
    if (n > 0) report_changes_print(report->out, change, n);
    if (needs > s->memory) snprintf(more, sizeof more, "%s more", size_format(needs - s->memory).text);
    return fail(err, ERR_CHECK, "--memory %s: none of %d plans fits: the smallest, %s, needs at least %s, %s",
                size_word(s->memory).text, s->count, words_of(report, at, words), size_format(needs).text, more);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* The words of the command line that are of `orrery train`, too; and where rows of a mixture go if none says it. */
static void take_common(struct report *report)
{
    const struct train_options *o = report->options;
    size_t used = 0;
    for (int i = 0; i < o->argc; i++) {
        const struct option *own = own_options;
        const size_t name = strcspn(o->argv[i], "=");
        while (own->kind != OPTION_END && (own->name == NULL || strlen(own->name) != name ||
                                           strncmp(own->name, o->argv[i], name) != 0)) own++;
        const bool json = strncmp(o->argv[i], "--json", name) == 0 || strncmp(o->argv[i], "--memory", name) == 0;
        if (own->kind != OPTION_END || json) {
            i += o->argv[i][name] == '\0';              /* its value is the next word */
            continue;
        }
        if (used + strlen(o->argv[i]) + 2 < sizeof report->common)
            used += (size_t)snprintf(report->common + used, sizeof report->common - used, "%s%s",
                                     used ? " " : "", o->argv[i]);
    }
    const char *load = o->plan.model.mlp == MLP_MIXTURE && o->load_word == NULL ? "--load even" : "";
    if (*load && used + strlen(load) + 2 < sizeof report->common)
        snprintf(report->common + used, sizeof report->common - used, "%s%s", used ? " " : "", load);
}

/* The line changes with each percent, and with each better plan. */
static void see_search(void *context, const char *doing, double part)
{
    struct report *r = context;
    const struct candidate *best = search_best(&r->search);
    char what[80] = "";
    if (!r->line.shown) return;
    if (best) snprintf(what, sizeof what, "best so far %s a step", picoseconds_format((double)best->time).text);
    time_left_show(&r->line, part, doing, what);
}

static bool search_is_over(void *context)
{
    const struct report *r = context;
    return stopping_asked() != 0 || (asked.seconds > 0 && measure_now() - r->started >= asked.seconds);
}

/* Replayed beside the plans of --top, at most: each takes as long as `orrery plan`, without folding. */
enum { MOST_REPLAYS = 27 };

static enum error_code search(struct report *report, struct error *err)
{
    report->started = measure_now();
    time_left_begin(&report->line);
    stopping_listen();
    report->search.tell = see_search, report->search.ends = search_is_over, report->search.context = report;
    enum error_code e = report->planner->choose(&report->search, err);
    if (!e) e = search_rank(&report->search, &report->ranked, err);
    report->fit = report->ranked;
    if (!e) e = search_replay(&report->search, asked.top, asked.top + MOST_REPLAYS, &report->ranked,
                              &report->beaten, err);
    time_left_end(&report->line);
    report->seconds = measure_now() - report->started;
    if (!e && report->ranked == 0 && report->search.count > 0 && report->options->json)
        e = search_write_json(report, err);
    if (!e && report->ranked == 0) e = nothing_fits(report, err);
    if (e) return e;
    e = make_rows(report, err);
    if (e) return e;
    print_report(report);
    return report->options->json ? search_write_json(report, err) : OK;
}

static enum error_code train_search_run(const struct train_options *options, struct error *err)
{
    struct report r = { .options = options, .out = run_stream(options) };
    asked.space.base = &options->plan, asked.space.devices = asked.devices;
    enum error_code e = asked.planner ? planner_find(&r.planner, asked.planner, err) : OK;
    if (!e) e = cluster_check(&options->cluster, asked.devices, options->plan.dtype, err);
    if (!e) e = likes_limit(&asked.space, &asked.likes, asked.like, err);
    if (!e) e = plan_space_open(&asked.space, err);
    if (e) return e;
    if (r.planner == NULL) r.planner = planner_usual(&asked.space);
    r.search = (struct search){ .space = &asked.space, .memory = report_budget(options),
                                .most = asked.plans_given ? asked.plans : r.planner->most };
    take_common(&r);
    e = search(&r, err);
    free(r.frontier), free(r.first), free(r.row);
    search_close(&r.search);
    plan_space_close(&asked.space);
    return e;
}

enum error_code command_search(int argc, char **argv, int *status, struct error *err)
{
    struct train_options o;
    (void)status;
    asked.like = LIKES_USUAL, asked.top = 5;
    enum error_code e = train_parse(&o, &run_search, argc - 2, argv + 2, err);
    if (!e && !o.help && launcher_rank() == 0) e = train_search_run(&o, err);
    train_options_free(&o);
    return e;
}
