/* planned.c -- draws tables, finds what is best of all plans, and compares.  jobs/planners.c, cli/bench/planners.c and
 * tests call.  A promise that is not kept is ERR_CHECK; without memory the code is ERR_MEMORY. */
#include "emulated_devices/verify/cases/planned.h"
#include "ref/numeric/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 8, SIZES = 4 };

/* ---- a table ----------------------------------------------------------------------------------------------------- */

struct table_drawing { uint64_t seed, next; };

static int table_draw(struct table_drawing *drawing, int n)
{
    return (int)(random_uniform(drawing->seed, 59, drawing->next++) * n);
}

/* Strategies on 1, 2, 4 and 8 devices: a drawn number of each, and at least one on some. */
static void draw_strategies(struct table_drawing *drawing, struct layer_table *table)
{
    const int most = table->layers > 4 ? 2 : 3;
    for (int z = 0; z < SIZES; z++) {
        const int n = table_draw(drawing, most + 1) + (z == SIZES - 1 && table->strategies == 0);
        for (int i = 0; i < n; i++) {
            struct strategy *const s = &table->strategy[table->strategies];
            const bool like_before = i > 0 && table_draw(drawing, 3) == 0;
            *s = (struct strategy){ .devices = 1 << z, .layout = table->layouts - like_before };
            snprintf(s->name, sizeof s->name, "s%d", table->strategies++);
            if (s->layout == table->layouts) table->layouts++;
        }
    }
}

static void draw_costs(struct table_drawing *drawing, struct layer_table *table)
{
    for (int k = 0; k < table->kinds; k++)
        for (int s = 0; s < table->strategies; s++) {
            struct layer_cost *const c = &table->cost[k * table->strategies + s];
            const int time = 1 + table_draw(drawing, 60);
            *c = (struct layer_cost){ .there = s == 0 || table_draw(drawing, 12) > 0, .time = time,
                                      .once = table_draw(drawing, 20), .computing = 1 + table_draw(drawing, time),
                                      .state = 1 + (uint64_t)table_draw(drawing, 40),
                                      .activation = (uint64_t)table_draw(drawing, 12) };
        }
    for (int i = 0; i < table->layouts * table->layouts; i++)
        table->edge[i] = i / table->layouts == i % table->layouts ? 0 : table_draw(drawing, 10);
    for (int a = 0; a < SIZES; a++) {
        table->beside[a] = (uint64_t)table_draw(drawing, 6);
        for (int b = 0; b < SIZES; b++) table->hop[a][b] = table_draw(drawing, 8);
    }
}

static enum error_code draw_room(struct layer_table *table, struct error *err)
{
    const size_t layers = (size_t)table->layers, most = 3 * SIZES + 1;
    table->kind = calloc(layers, sizeof *table->kind), table->strategy = calloc(most, sizeof *table->strategy);
    table->cost = calloc(layers * most, sizeof *table->cost), table->edge = calloc(most * most, sizeof *table->edge);
    table->percent = calloc(DEVICES, sizeof *table->percent);
    if (table->kind && table->strategy && table->cost && table->edge && table->percent) return OK;
    layer_table_free(table);
    return fail(err, ERR_MEMORY, "no memory for a drawn table");
}

enum error_code planned_draw(struct layer_table *table, uint64_t *memory, int draw, struct error *err)
{
    struct table_drawing drawing = { (uint64_t)draw, 0 };
    *table = (struct layer_table){ .devices = DEVICES, .layers = 3 + table_draw(&drawing, 4) };
    table->micros = 1 + table_draw(&drawing, 8);
    enum error_code e = draw_room(table, err);
    if (e) return e;
    table->kinds = 1 + table_draw(&drawing, table->layers);
    for (int l = 0; l < table->layers; l++) table->kind[l] = table_draw(&drawing, table->kinds);
    draw_strategies(&drawing, table);
    draw_costs(&drawing, table);
    for (int d = 0; d < DEVICES; d++) table->percent[d] = draw % 4 == 3 && d >= DEVICES / 2 ? 50 : 100;
    *memory = draw % 5 == 4 ? 0 : 20 + (uint64_t)table_draw(&drawing, 60 * table->layers);
    table->products = 2;
    for (int i = 0; i < table->products; i++)
        table->product[i] = (struct layer_product){ 1 << table_draw(&drawing, 10), 1 << table_draw(&drawing, 10),
                                                    1 << table_draw(&drawing, 10) };
    e = layer_table_check(table, "a drawn table", err);
    if (e) layer_table_free(table);
    return e;
}

/* ---- brute force ------------------------------------------------------------------------------------------------- */

#define CLASSES (LAYERS_ALIKE + 1)
enum { POINTS_MOST = 1 << 16 };

/* The best of each class of plans, and the points of all plans of one stage. */
struct best { const struct layer_table *table; uint64_t memory; bool there[CLASSES]; picoseconds time[CLASSES];
              struct layer_point *point; int points; };

static void best_look(void *context, const struct layer_plan *plan, const struct layer_verdict *verdict)
{
    struct best *const best = context;
    if (plan->stages == 1 && best->points < POINTS_MOST)
        best->point[best->points++] = (struct layer_point){ verdict->time, verdict->memory };
    if (best->memory > 0 && verdict->memory > best->memory) return;
    for (enum layers_exact c = LAYERS_ALL; c <= LAYERS_ALIKE; c++)
        if (layers_exact_has(c, best->table, plan) && (!best->there[c] || verdict->time < best->time[c]))
            best->there[c] = true, best->time[c] = verdict->time;
}

static bool point_beaten(const struct best *best, int i)
{
    for (int k = 0; k < best->points; k++) {
        const struct layer_point *const a = &best->point[k], *const b = &best->point[i];
        const bool equal = a->time == b->time && a->memory == b->memory;
        if (!equal ? a->time <= b->time && a->memory <= b->memory : k < i) return true;
    }
    return false;
}

/* ---- the comparison ---------------------------------------------------------------------------------------------- */

static struct planned_row *row_of(struct planned_count *count, const struct planner *planner)
{
    for (int i = 0; i < count->rows; i++)
        if (count->row[i].planner == planner) return &count->row[i];
    count->row[count->rows] = (struct planned_row){ .planner = planner };
    return &count->row[count->rows++];
}

/* The points of a planner are those that no plan beats, each once. */
static enum error_code hold_frontier(const struct best *best, const struct layer_search *search, const char *name,
                                     int draw, struct error *err)
{
    int expected = 0;
    for (int i = 0; i < best->points; i++) {
        if (point_beaten(best, i)) continue;
        const struct layer_point *const p = &best->point[i];
        bool found = false;
        for (int k = 0; k < search->points && !found; k++)
            found = search->point[k].time == p->time && search->point[k].memory == p->memory;
        if (!found)
            return fail(err, ERR_CHECK, "table %d: %s: its frontier lacks %lld ps with %llu bytes", draw, name,
                        (long long)p->time, (unsigned long long)p->memory);
        expected++;
    }
    if (search->points == expected) return OK;
    return fail(err, ERR_CHECK, "table %d: %s: its frontier has %d points, of which a plan beats %d: it keeps "
                "dominated points", draw, name, search->points, search->points - expected);
}

/* A planner must give a plan of the table that fits, and takes what the table says. */
static enum error_code hold_plan(const struct layer_search *search, const char *name, int draw, struct error *err)
{
    struct layer_verdict v;
    if (!layer_plan_judge(search->table, &search->best, &v))
        return fail(err, ERR_CHECK, "table %d: %s: its plan is not one of the table: stages or devices are left out",
                    draw, name);
    if (v.time != search->verdict.time || v.memory != search->verdict.memory)
        return fail(err, ERR_CHECK, "table %d: %s: says %lld ps, its plan takes %lld", draw, name,
                    (long long)search->verdict.time, (long long)v.time);
    if (search->memory > 0 && v.memory > search->memory)
        return fail(err, ERR_CHECK, "table %d: %s: its plan needs %llu bytes of %llu", draw, name,
                    (unsigned long long)v.memory, (unsigned long long)search->memory);
    return OK;
}

static enum error_code hold_promise(const struct best *best, const struct layer_search *search,
                                    const struct planner *planner, int draw, struct error *err)
{
    const enum layers_exact c = planner->exact_of;
    if (search->found != best->there[c])
        return fail(err, ERR_CHECK, "table %d: %s finds %s, and brute force %s", draw, planner->name,
                    search->found ? "a plan" : "no plan that fits", best->there[c] ? "one" : "none");
    if (search->found && search->verdict.time != best->time[c])
        return fail(err, ERR_CHECK, "table %d: %s takes %lld ps, the best of all plans %lld ps", draw, planner->name,
                    (long long)search->verdict.time, (long long)best->time[c]);
    return planner->frontier ? hold_frontier(best, search, planner->name, draw, err) : OK;
}

static void note_gap(struct planned_row *row, const struct best *best, const struct layer_search *search)
{
    row->looked += search->looked;
    if (!search->found) {
        row->missed += best->there[LAYERS_ALL];
        return;
    }
    const double gap = (double)search->verdict.time / (double)best->time[LAYERS_ALL] - 1;
    row->compared++, row->best += search->verdict.time == best->time[LAYERS_ALL], row->gap += gap;
    if (gap > row->worst) row->worst = gap;
}

static enum error_code hold_planner(struct planned_count *count, const struct best *best,
                                    const struct planner *planner, int draw, struct error *err)
{
    struct layer_search search = { .table = best->table, .memory = best->memory, .seed = (uint64_t)draw };
    struct planned_row *const row = row_of(count, planner);
    struct error why;
    enum error_code e = planner->solve(&search, &why);
    /* A heuristic may not take a table: then it has found nothing. */
    if (e == ERR_PLAN && planner->exact_of == LAYERS_NONE) e = OK, search.found = false;
    if (e) return fail(err, e, "table %d: %s: %s", draw, planner->name, why.text);
    if (!e && search.found) e = hold_plan(&search, planner->name, draw, err);
    if (!e && planner->exact_of != LAYERS_NONE) e = hold_promise(best, &search, planner, draw, err), row->held++;
    if (!e) note_gap(row, best, &search);
    layer_search_free(&search);
    return e;
}

enum error_code planned_hold(struct planned_count *count, int draw, struct error *err)
{
    struct layer_table table;
    struct best best = { .points = 0 };
    enum error_code e = planned_draw(&table, &best.memory, draw, err);
    if (e) return e;
    best.table = &table, best.point = calloc(POINTS_MOST, sizeof *best.point);
    if (best.point == NULL) e = fail(err, ERR_MEMORY, "no memory for all plans of a table");
    if (!e) count->plans += layer_plans_each(&table, INT64_MAX - 1, best_look, &best);
    count->tables++, count->infeasible += !best.there[LAYERS_ALL];
    for (int i = 0; planner_at(i) && !e; i++)
        if (planner_at(i)->solve) e = hold_planner(count, &best, planner_at(i), draw, err);
    free(best.point);
    layer_table_free(&table);
    return e;
}
