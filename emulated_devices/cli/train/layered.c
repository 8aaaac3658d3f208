/* layered.c -- `orrery search --planner NAME` of planners by layers: makes or reads tables, solves them, plans the
 * steps of what is found.  search.c calls layered_run().  ERR_CHECK means that nothing fits; the other errors are those
 * of words, files, tables and plans. */
#include "emulated_devices/cli/train/layered.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/run/report/report.h"
#include "emulated_devices/train/dry_run/alike.h"
#include "ref/io/output.h"
#include "ref/io/time_left.h"
#include "ref/machine/measure.h"
#include <stdlib.h>
#include <string.h>

bool layered_asked(void)
{
    const char *const name = search_asked.planner;
    if (search_asked.table || search_asked.table_out) return true;
    for (int i = 0; name && planner_at(i); i++)
        if (planner_at(i)->solve && strcmp(planner_at(i)->name, name) == 0) return true;
    return name && strcmp(name, PLANNER_ALL) == 0;
}

/* ---- the words --------------------------------------------------------------------------------------------------- */

/* Plans by layers have stages of sections; these words are of other plans. */
static enum error_code check_words(const struct searched *searched, struct error *err)
{
    static const char *const flags[] = { "--pp", "--schedule", "--stage-layers", "--chunks", "--offload",
                                         "--head-parallel", "--ring-window", "--context-first" },
        *const ends[] = { "--plans", "--seconds", "--top" };
    const struct train_options *const o = searched->options;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (options_given(o->argc, o->argv, flags[i]))
            return fail(err, ERR_USAGE, "%s: plans by layers run 1f1b with stages that the planner chooses; take "
                        "--planner beam, or leave it out", flags[i]);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (options_given(o->argc, o->argv, ends[i]))
            return fail(err, ERR_USAGE, "%s: planners by layers end by themselves, with one plan each", ends[i]);
    if (search_asked.table && search_asked.table_out)
        return fail(err, ERR_USAGE, "--table-out: --table has read a table already");
    if (o->plan.lengths) return fail(err, ERR_USAGE, "--pack: plans by layers are of whole sequences");
    return OK;
}

/* As many microbatches as a list says; without one 8, or what divides the batch below. */
static int layered_micros(const struct layered *layered, int micros[LAYERED_TABLES])
{
    const int64_t B = layered->searched->options->plan.B;
    const char *const list = search_asked.space.only[BY_MICROS];
    int n = 0;
    if (list == NULL) {
        micros[0] = 8;
        while (B % micros[0] != 0) micros[0] /= 2;
        return 1;
    }
    for (const char *at = list; at && n < LAYERED_TABLES; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        micros[n++] = atoi(at);
    return n;
}

/* The lists as typed; --like and --zero say more. */
static void take_space(struct layered *layered)
{
    const struct searched *const searched = layered->searched;
    layered->space = search_asked.space;
    if (search_asked.like_given) layered->space = searched->space;
    if (search_asked.zero) layered->space.only[BY_DATA] = searched->data;
    layered->space.base = &searched->options->plan, layered->space.devices = search_asked.devices;
}

static enum error_code take_tables(struct layered *layered, struct error *err)
{
    const double began = measure_now();
    int micros[LAYERED_TABLES];
    enum error_code e = OK;
    layered->of_model = search_asked.table == NULL;
    if (search_asked.table) {
        e = fail_about(err, layer_table_read(&layered->table[0], search_asked.table, err), "--table");
        layered->tables = e ? 0 : 1;
        return e;
    }
    const int n = layered_micros(layered, micros);
    for (int i = 0; i < n && !e; i++) {
        e = layer_table_make(&layered->table[i], &layered->space, micros[i], &layered->searched->search.stop, err);
        layered->tables += e == OK;
    }
    layered->made = measure_now() - began;
    return e;
}

/* ---- solving ----------------------------------------------------------------------------------------------------- */

/* A planner's best of all tables, with so much memory. */
static enum error_code solve_tables(const struct layered *layered, struct layered_row *row, struct error *err)
{
    const double began = measure_now();
    enum error_code e = OK;
    row->found = false;
    for (int t = 0; t < layered->tables && !e; t++) {
        struct layer_search s = { .table = &layered->table[t], .memory = row->memory,
                                  .seed = layered->searched->options->plan.seed };
        e = row->planner->solve(&s, err);
        const bool better = !e && s.found && (!row->found || s.verdict.time < row->search.verdict.time);
        if (better || (!e && row->search.table == NULL)) {
            layer_search_free(&row->search);
            row->search = s, row->found = s.found;
        } else layer_search_free(&s);
    }
    row->seconds += measure_now() - began;
    return e;
}

/* A step in which more devices run takes minutes to plan: few of them stand for others. */
enum { PLANNED_LIVES = 256 };

static bool is_quick(const struct plan *plan)
{
    char unread[200];
    const struct folding f = plan_alike(plan, unread);
    return folding_lives(&f) <= PLANNED_LIVES;
}

static enum error_code plan_row(const struct layered *layered, struct layered_row *row, struct error *err)
{
    const struct layer_table *const table = layered_table(row);
    struct plan plan, base = layered->searched->options->plan;
    struct sections sections;
    struct candidate planned = { .time = 0 };
    if (!layered->of_model) return OK;
    struct cluster placed = *base.cluster;
    if (row->search.slot) placed.slot = row->search.slot, base.cluster = &placed;
    enum error_code e = layer_plan_sections(table, &row->search.best, &base, &plan, &sections, err);
    if (e) return e;
    if (is_quick(&plan)) e = search_plan(&plan, &planned, err);
    sections_free(&sections);
    row->step = planned.time, row->peak = planned.peak;
    return e;
}

/* The table adds up what a stage needs, which can be a little less than the planned peak.  Then the planner gets so
 * much less, a few times. */
enum { MEMORY_ROUNDS = 4 };

static enum error_code solve_row(const struct layered *layered, struct layered_row *row, struct error *err)
{
    const uint64_t memory = layered->searched->search.memory;
    enum error_code e = OK;
    row->memory = memory;
    for (int round = 0; round < MEMORY_ROUNDS && !e; round++) {
        e = solve_tables(layered, row, err);
        if (e == ERR_PLAN) return snprintf(row->refused, sizeof row->refused, "%s", err->text), OK;
        if (e || !row->found) break;
        e = plan_row(layered, row, err);
        /* The table does not know what sections of a plan must have in common. */
        if (e == ERR_PLAN)
            return snprintf(row->refused, sizeof row->refused, "%s's plan: %.380s", row->planner->name, err->text),
                   row->found = false, OK;
        row->above = memory > 0 && row->peak > memory;
        if (!row->above || row->peak - memory >= row->memory) break;
        row->memory -= row->peak - memory;
    }
    if (row->above) row->found = false;
    return e;
}

static bool row_wanted(const struct planner *planner)
{
    const char *const name = search_asked.planner;
    return planner->solve && (name == NULL || strcmp(name, PLANNER_ALL) == 0 || strcmp(name, planner->name) == 0);
}

/* A time to rank by: the planned step, or the table's. */
static picoseconds row_time(const struct layered_row *row)
{
    return !row->found ? INT64_MAX : row->step > 0 ? row->step : row->search.verdict.time;
}

static int rows_in_time(const void *a, const void *b)
{
    const struct layered_row *x = a, *y = b;
    if (row_time(x) != row_time(y)) return row_time(x) < row_time(y) ? -1 : 1;
    return strcmp(x->planner->name, y->planner->name);
}

static enum error_code solve_rows(struct layered *layered, struct error *err)
{
    const bool all = search_asked.planner == NULL || strcmp(search_asked.planner, PLANNER_ALL) == 0;
    enum error_code e = OK;
    for (int i = 0; planner_at(i) && !e; i++) {
        if (!row_wanted(planner_at(i)) || layered->rows == LAYERED_PLANNERS) continue;
        struct layered_row *const row = &layered->row[layered->rows++];
        *row = (struct layered_row){ .planner = planner_at(i) };
        e = solve_row(layered, row, err);
        if (!e && row->refused[0] && !all) e = ERR_PLAN;
    }
    if (!e) qsort(layered->row, (size_t)layered->rows, sizeof *layered->row, rows_in_time);
    return e;
}

static void layered_close(struct layered *layered)
{
    for (int i = 0; i < layered->rows; i++) layer_search_free(&layered->row[i].search);
    for (int t = 0; t < layered->tables; t++) layer_table_free(&layered->table[t]);
    free(layered);
}

static enum error_code layered_solve(struct layered *layered, struct error *err)
{
    enum error_code e = check_words(layered->searched, err);
    if (!e) take_space(layered);
    if (!e) e = take_tables(layered, err);
    if (e) return e;
    if (search_asked.table_out) {
        e = fail_about(err, layer_table_write(&layered->table[0], search_asked.table_out, err), "--table-out");
        if (e || search_asked.planner == NULL) return e;
    }
    e = solve_rows(layered, err);
    if (e) return e;
    const bool found = layered->rows > 0 && layered->row[0].found;
    if (found) layered_print(layered);
    if (found && search_asked.out) e = fail_about(err, layered_write(layered, search_asked.out, err), "--out");
    if (!e && found && search_asked.page) e = fail_about(err, layered_page(layered, search_asked.page, err), "--page");
    if (!e && layered->searched->options->json) e = layered_json(layered, err);
    return e || found ? e : layered_nothing_fits(layered, err);
}

enum error_code layered_run(struct searched *searched, struct error *err)
{
    struct layered *const layered = calloc(1, sizeof *layered);
    if (layered == NULL) return fail(err, ERR_MEMORY, "no memory for a search by layers");
    layered->searched = searched;
    const enum error_code e = layered_solve(layered, err);
    layered_close(layered);
    return e;
}
