/* search_report.c -- what is said of a search: plans as a table, why the next ones are slower, the frontier, JSON.
 * search.c and choose.c call.  searched_nothing_fits returns ERR_CHECK; without memory the code is ERR_MEMORY. */
#include "emulated_devices/cli/train/search_report.h"
#include "emulated_devices/run/report/plan_report.h"
#include "emulated_devices/launch/stopping.h"
#include "ref/io/json.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

/* The place of a row's first plan, and the row of a place. */
static const struct candidate *in_row(const struct searched *searched, int row)
{
    return &searched->search.of[searched->row[row]];
}
static int search_row_of(const struct searched *searched, int place)
{
    int row = 0;
    while (searched->row[row] != searched->first[place]) row++;
    return row;
}

enum error_code searched_make_rows(struct searched *searched, struct error *err)
{
    const size_t n = (size_t)searched->ranked;
    searched->frontier = calloc(n, sizeof *searched->frontier), searched->first = calloc(n, sizeof *searched->first);
    searched->row = calloc(n, sizeof *searched->row);
    if (!searched->frontier || !searched->first || !searched->row)
        return fail(err, ERR_MEMORY, "no memory for a list of plans");
    searched->frontiers = search_frontier(searched->search.of, searched->ranked, searched->frontier);
    search_group(searched->search.of, searched->ranked, searched->first);
    for (int i = 0; i < searched->ranked; i++)
        if (searched->first[i] == i) searched->row[searched->rows++] = i;
    searched->shown = searched->rows < search_asked.top ? searched->rows : search_asked.top;
    return OK;
}

const char *searched_words(const struct searched *searched, int place, char *text)
{
    struct plan p;
    plan_space_make(searched->search.space, &searched->search.of[place].choice, &p);
    return plan_space_words(&p, text, PLAN_WORDS);
}

static double percent_of(picoseconds part, const struct candidate *candidate)
{
    return candidate->time > 0 ? 100 * (double)part / (double)candidate->time : 0;
}

const char *searched_why_ended(void)
{
    return stopping_asked() ? stopping_name(stopping_asked()) : "--seconds";
}

void searched_print_head(const struct searched *searched)
{
    const struct train_options *o = searched->options;
    const struct search *s = &searched->search;
    say(searched->out, 8, "search  %d devices of %s for %s in %s: %lld sequences of %lld tokens a step, %s a device",
        s->space->devices, o->cluster.name, o->plan.model.name, dtype_name(o->plan.dtype), (long long)o->plan.B,
        (long long)o->plan.S, s->memory ? memory_format(s->memory).text : "any memory");
    if (o->plan.lengths) report_packing(searched->out, o->plan.lengths);
    say(searched->out, 8, "looked  at %d legal plans (%s: %s)", s->count, searched->planner->name,
        searched->planner->description);
    if (strcmp(search_asked.like, LIKES_ALL) != 0)
        say(searched->out, 8, "        of schemes as in %s%s%s", search_asked.like,
            s->space->only[BY_ATTENTION] == searched->likes.text[BY_ATTENTION] && o->plan.lengths
                ? ", and those that plan by lengths" : "",
            search_asked.like_given ? "" : "; --like all takes every scheme");
    say(searched->out, 8,
        "        a lower bound says of %lld that they need more memory; %lld were planned, and %d of these fit",
        (long long)s->over, (long long)s->planned, searched->fit);
    if (s->unseen > 0)
        say(searched->out, 8,
            "        %d unusual meshes of %d were not looked at; --seconds S or --plans N looks at all", s->unseen,
            s->space->meshes);
    if (s->unimproved > 0)
        say(searched->out, 8,
            "        %d starts that do not fit were not changed; --seconds S or --plans N changes all", s->unimproved);
    if (s->dear > 0)
        say(searched->out, 8, "        %lld more were left out, as planning them takes long; --seconds S or --plans N "
            "plans them, too", (long long)s->dear);
    if (s->ended)
        say(searched->out, 8, "        ended early, %s: the first is the best so far", searched_why_ended());
    else say(searched->out, 8, "        so %s", s->planned + s->over < s->count
        ? "of those planned the first is the fastest; the others were only estimated" : searched->planner->promise);
    if (cluster_replays(&searched->options->cluster) && s->of[0].clocks == 0)
        say(searched->out, 8, "        times are by the clocks, without sharing and contention: none was replayed");
    else if (cluster_replays(&searched->options->cluster))
        say(searched->out, 8, "        %d of them were replayed with sharing and contention: %s", searched->ranked,
            searched->beaten ? "the others are slower even without it"
                : "without it, others are faster than some of these");
}

/* The units of the times and sizes of all ranked plans. */
struct units { struct figure_scale time, size; };

static struct units units_of(const struct searched *searched)
{
    picoseconds longest = 0;
    uint64_t most = 0;
    for (int i = 0; i < searched->ranked; i++) {
        const struct candidate *c = &searched->search.of[i];
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
static void print_group(const struct searched *searched, int row, bool equal, const char *title)
{
    enum { MOST = 3 };
    const int at = searched->row[row];
    char list[MOST * PLAN_WORDS] = "", more[64] = "", text[PLAN_WORDS];
    struct plan first, p;
    int n = 0;
    plan_space_make(searched->search.space, &searched->search.of[at].choice, &first);
    for (int i = at + 1; i < searched->ranked; i++) {
        if (searched->first[i] != at || search_equal(&searched->search.of[i], &searched->search.of[at]) != equal
            || ++n > MOST) continue;
        plan_space_make(searched->search.space, &searched->search.of[i].choice, &p);
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? "; " : "",
                 plan_space_difference(&first, &p, text, sizeof text));
    }
    if (n > MOST) snprintf(more, sizeof more, "; and %d more (--json)", n - MOST);
    if (n > 0) say(searched->out, 6, "      %s: %s%s", title, list, more);
}

static void print_words(const struct searched *searched, int from, const char *command)
{
    char text[PLAN_WORDS], near[80];
    snprintf(near, sizeof near, "less than %g %% slower, saves less than %g %% of memory", 100 * SEARCH_NEAR,
             100 * SEARCH_NEAR);
    for (int i = from; i < searched->shown; i++) {
        say(searched->out, 6, "%4d  %s", i + 1, searched_words(searched, searched->row[i], text));
        print_group(searched, i, true, "the same time, memory and bytes");
        print_group(searched, i, false, near);
    }
    say(searched->out, 6, "      each behind: orrery %s%s%s", command, searched->common[0] ? " " : "",
        searched->common);
}

void searched_print_plans(const struct searched *searched, int from, const char *command)
{
    const struct units u = units_of(searched);
    struct columns t = columns_start(searched->out);
    bool known = true;
    fprintf(searched->out, "\n");
    do {
        static const char *const titles[] = { "compute %", "exposed %", "bubble %" };
        columns_add(&t, RIGHT_ALIGNED, "plan"), columns_add(&t, RIGHT_ALIGNED, "%s a step", u.time.name);
        columns_add(&t, RIGHT_ALIGNED, "peak %s", u.size.name);
        for (int i = 0; i < 3; i++) columns_add(&t, RIGHT_ALIGNED, "%s", titles[i]);
        columns_end_row(&t);
        for (int i = from; i < searched->shown; i++) {
            const struct candidate *c = in_row(searched, i);
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
    if (!known) say(searched->out, 6, "   -  not known: a step of this plan has too many events to keep");
    fprintf(searched->out, "\n");
    print_words(searched, from, command);
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
static void print_why(const struct searched *searched, int other)
{
    const struct candidate *a = in_row(searched, 0), *b = in_row(searched, other);
    char kinds[300] = "", words[PLAN_WORDS + 16] = "", text[PLAN_WORDS];
    int used = 0;
    if (other >= searched->shown)
        snprintf(words, sizeof words, " (%s)", searched_words(searched, searched->row[other], text));
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++) {
        const picoseconds more = b->share.waiting[k] - a->share.waiting[k];
        if (k == TRAFFIC_PIPELINE || k == TRAFFIC_RESULT || more == 0 || used > 200) continue;
        used += snprintf(kinds + used, sizeof kinds - (size_t)used, "%s%s %s", used ? ", " : " (",
                         traffic_kind_name(k), change_of(more).text);
    }
    say(searched->out, 8, "why     plan %d%s takes %s more than plan 1, %.2f %%%s", other + 1, words,
        picoseconds_format((double)(b->time - a->time)).text, 100 * ((double)b->time / (double)a->time - 1),
        a->share_known && b->share_known ? ":" : "; on what is not known");
    if (!a->share_known || !b->share_known) return;
    say(searched->out, 8, "        computing %s, bubble %s, exposed communication %s%s%s",
        change_of(b->share.computing - a->share.computing).text,
        change_of(step_share_bubble(&b->share) - step_share_bubble(&a->share)).text,
        change_of(step_share_exposed(&b->share) - step_share_exposed(&a->share)).text, kinds, used ? ")" : "");
}

/* The first row that takes longer than the winner; the first of those on another mesh; 0: there is none. */
static int slower(const struct searched *searched)
{
    int i = 1;
    while (i < searched->rows && in_row(searched, i)->time == in_row(searched, 0)->time) i++;
    return i < searched->rows ? i : 0;
}
static int other_mesh(const struct searched *searched)
{
    const int mesh = in_row(searched, 0)->choice.value[BY_MESH];
    int i = slower(searched);
    while (i > 0 && i < searched->rows && in_row(searched, i)->choice.value[BY_MESH] == mesh) i++;
    return i < searched->rows ? i : 0;
}

static void print_frontier(const struct searched *searched)
{
    const struct units u = units_of(searched);
    char text[PLAN_WORDS];
    if (searched->frontiers < 2) return;
    fprintf(searched->out, "\nless memory for more time, of the plans that were planned\n");
    for (int i = 0; i < searched->frontiers; i++) {
        const struct candidate *c = &searched->search.of[searched->frontier[i]];
        say(searched->out, 28, "%9s %-2s  %7s %-3s  %s", time_in(&u, c->time).text, u.time.name,
            scale_format(&u.size, (double)c->peak).text, u.size.name,
            searched_words(searched, searched->frontier[i], text));
    }
}

void searched_print(const struct searched *searched)
{
    searched_print_head(searched);
    searched_print_plans(searched, 0, "train");
    fprintf(searched->out, "\n");
    if (slower(searched) > 0) print_why(searched, slower(searched));
    if (other_mesh(searched) > slower(searched)) print_why(searched, other_mesh(searched));
    print_frontier(searched);
    fprintf(searched->out, "searched in %s\n", time_format(searched->seconds).text);
}

/* ---- the smallest ----------------------------------------------------------------------------------------------- */

/* Find the plan whose fullest device needs least memory: by its lower bound, as most plans are not planned. */
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

void searched_add_plan(cJSON *list, const struct searched *searched, int place)
{
    const struct candidate *c = &searched->search.of[place];
    cJSON *o = cJSON_CreateObject(), *exposed;
    char text[PLAN_WORDS];
    cJSON_AddItemToArray(list, o);
    json_add(o, "words %s group %d virtual_step_ps %g", searched_words(searched, place, text),
             search_row_of(searched, place) + 1,
             (double)c->time);
    if (c->clocks > 0) json_add(o, "virtual_step_by_clocks_ps %g", (double)c->clocks);
    json_add(o, "peak_bytes %g least_bytes %g", (double)c->peak, (double)c->least);
    if (c->estimate > 0 && c->estimate < INT64_MAX) json_add(o, "estimated_step_ps %g", (double)c->estimate);
    json_add(o, "sent_bytes %g", (double)c->sent);
    if (!c->share_known) return;
    json_add(o, "computing_ps %g exposed_ps %g bubble_ps %g", (double)c->share.computing,
             (double)step_share_exposed(&c->share), (double)step_share_bubble(&c->share));
    exposed = cJSON_AddObjectToObject(o, "waiting_ps");
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
        cJSON_AddNumberToObject(exposed, traffic_kind_name(k), (double)c->share.waiting[k]);
}

/* Where nothing fits. */
static void add_smallest(cJSON *root, const struct searched *searched)
{
    char text[PLAN_WORDS];
    const int at = smallest(&searched->search);
    json_add(cJSON_AddObjectToObject(root, "smallest"), "words %s needs_bytes %g", searched_words(searched, at, text),
             (double)needs_of(&searched->search.of[at]));
}

enum error_code searched_json(const struct searched *searched, struct error *err)
{
    const struct search *s = &searched->search;
    cJSON *root = document_start("orrery search"), *plans, *frontier;
    json_add(root, "model %s cluster %s devices %d memory_bytes %g batch %g seq %g words %s planner %s legal %d"
             " above_memory %g planned %g fit %d replayed %d others_beaten %hhd all_planned %hhd left_out %g"
             " meshes_not_seen %d starts_not_improved %d like %s",
             searched->options->plan.model.name, searched->options->cluster.name, s->space->devices, (double)s->memory,
             (double)searched->options->plan.B, (double)searched->options->plan.S, searched->common,
             searched->planner->name,
             s->count, (double)s->over, (double)s->planned, searched->fit,
             searched->fit == 0 || searched->search.of[0].clocks == 0 ? 0 : searched->ranked, searched->beaten,
             (bool)(s->planned + s->over >= s->count && !s->ended), (double)s->dear, s->unseen, s->unimproved,
             search_asked.like);
    if (s->ended) json_add(root, "ended %s", searched_why_ended());
    plans = cJSON_AddArrayToObject(root, "plans");
    for (int i = 0; i < searched->ranked; i++)
        if (search_row_of(searched, i) < searched->shown) searched_add_plan(plans, searched, i);
    frontier = cJSON_AddArrayToObject(root, "frontier");
    for (int i = 0; i < searched->frontiers; i++) searched_add_plan(frontier, searched, searched->frontier[i]);
    if (searched->fit == 0) add_smallest(root, searched);
    return fail_about(err, json_finish(searched->options->json, root, err), "--json");
}

/* ---- nothing fits ------------------------------------------------------------------------------------------------ */

enum error_code searched_nothing_fits(const struct searched *searched, struct error *err)
{
    const struct search *s = &searched->search;
    char words[PLAN_WORDS], more[64] = "and was not planned (--plans)", unseen[160] = "";
    struct plan p;
    if (s->ended)
        return fail(err, ERR_CHECK, "%s: none of the %d plans that were looked at until then fits",
                    searched_why_ended(),
                    s->count);
    if (s->count == 0) return plan_space_explain(s->space, err);
    const int at = smallest(s);
    const uint64_t needs = needs_of(&s->of[at]);
    struct plan_space wider = *s->space;
    struct change change[3];
    int n = 0;
    /* Where not all was looked at, there is no work left for changes. */
    const bool tired = s->unseen + s->unimproved > 0;
    if (tired) snprintf(unseen, sizeof unseen, "; %d of %d meshes were not looked at, %d starts not changed: --seconds "
                        "S or --plans N looks at all", s->unseen, s->space->meshes, s->unimproved);
    wider.only[BY_OFFLOAD] = "none,optimizer";
    if (!tired && plan_space_make(s->space, &s->of[at].choice, &p))
        n = search_changes(&wider, &p, s->memory, change, 3);
    if (n > 0) report_changes_print(searched->out, change, n);
    if (needs > s->memory) snprintf(more, sizeof more, "%s more", size_format(needs - s->memory).text);
    return fail(err, ERR_CHECK, "--memory %s: none of %d plans fits: the smallest, %s, needs at least %s, %s%s",
                size_word(s->memory).text, s->count, searched_words(searched, at, words), size_format(needs).text,
                more, unseen);
}

