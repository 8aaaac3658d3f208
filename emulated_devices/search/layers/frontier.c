/* frontier.c -- solves one stage, and offers the plans of its last list.  tensoropt.c and mindspore.c call.  Errors
 * are those of graph.c and chain.c. */
#include "emulated_devices/search/layers/frontier.h"
#include "emulated_devices/search/layers/graph.h"
#include <stdlib.h>

/* A plan of one stage; layers have no strategy yet. */
static struct layer_plan one_stage(const struct layer_table *table)
{
    struct layer_plan plan = { .stages = 1 };
    plan.first[1] = table->layers, plan.devices[0] = table->devices;
    return plan;
}

/* Note a plan as a point of the frontier, and offer it.  Room is for as many points as there are. */
static void note_plan(struct layer_search *search, const struct layer_plan *plan)
{
    struct layer_verdict v;
    if (layer_plan_judge(search->table, plan, &v))
        search->point[search->points++] = (struct layer_point){ v.time, v.memory };
    layer_search_offer(search, plan);
}

static enum error_code open_points(struct layer_search *search, int count, struct error *err)
{
    search->point = calloc((size_t)count + 1, sizeof *search->point);
    return search->point ? OK : fail(err, ERR_MEMORY, "no memory for a frontier of %d points", count);
}

static enum error_code solve_graph_of(struct layer_search *search, enum chain_rule rule, struct error *err)
{
    struct layer_plan plan = one_stage(search->table);
    struct graph_frontier all;
    enum error_code e = graph_solve(&all, search->table, rule, err);
    if (e) return e;
    e = open_points(search, all.points, err);
    for (int i = 0; i < all.points && !e; i++) {
        graph_trace(&all, all.point[i].tree, plan.strategy);
        note_plan(search, &plan);
    }
    search->looked = all.looked, search->thinned = all.thinned;
    graph_free(&all);
    return e;
}

static enum error_code solve_line(struct layer_search *search, enum chain_rule rule, struct error *err)
{
    const struct layer_table *const table = search->table;
    struct layer_plan plan = one_stage(table);
    struct chain chain = { .table = table, .length = table->layers, .devices = table->devices,
                           .flight = layer_flight(table, 1), .cap = UINT64_MAX, .rule = rule,
                           .most = chain_usual_most(table) };
    enum error_code e = chain_open(&chain, err);
    if (e) return e;
    const struct chain_list *const last = &chain.list[(table->layers - 1) * table->layouts];
    int count = 0;
    for (int l = 0; l < table->layouts; l++) count += last[l].count;
    e = open_points(search, count, err);
    for (int l = 0; l < table->layouts && !e; l++)
        for (int i = last[l].first; i < last[l].first + last[l].count; i++) {
            chain_trace(&chain, i, table->layers, plan.strategy);
            note_plan(search, &plan);
        }
    search->looked = chain.count, search->thinned = chain.thinned;
    chain_close(&chain);
    return e;
}

enum error_code frontier_solve(struct layer_search *search, enum chain_rule rule, struct error *err)
{
    const struct layer_table *const table = search->table;
    if (layer_size_find(table, table->devices) < 0) return OK;       /* no strategy is on all devices */
    return table->link ? solve_graph_of(search, rule, err) : solve_line(search, rule, err);
}

/* The fastest first; of equal ones the one with least memory. */
static int in_time(const void *a, const void *b)
{
    const struct layer_point *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->memory < y->memory ? -1 : x->memory > y->memory;
}

void layer_points_reduce(struct layer_search *search)
{
    int kept = 0;
    if (search->points > 0) qsort(search->point, (size_t)search->points, sizeof *search->point, in_time);
    for (int i = 0; i < search->points; i++)
        if (kept == 0 || search->point[i].memory < search->point[kept - 1].memory)
            search->point[kept++] = search->point[i];
    search->points = kept;
}
