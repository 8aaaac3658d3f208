/* galvatron.c -- Galvatron: dynamic programming over layers and units of memory.
 *
 * The number of stages is a power of two, all have as many devices and floor(L / p) layers, and the last has the
 * remainder.  In each stage the time of all layers is least under the memory:
 *
 *     f[v][s] = min over s' of f[v - memory(layer, s)][s'] + edge(s', s) + time(layer, s)
 *
 * with v in units.  Memory counts up to whole units, and at least one: with a layer of none, the released code's update
 * in place reads what it has just written, and finds 3 where 2 is right.  The released code rates pipelines by a
 * formula of its own; here the table's decides between numbers of stages.
 *
 * Apart from alpa.c: neither the cut of layers nor the devices of a stage are chosen.
 *
 * Source   X. Miao et al., Galvatron (PKU), arXiv:2211.13878, section 4; PKU-DAIR/Hetu-Galvatron, csrc/dp_core.cpp.
 *          arXiv:2504.03662 (E. Gumaan) has the same name, and is another system.
 */
#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/planner.h"
#include <stdlib.h>

/* Less memory than this many bytes counts byte by byte; more in so many units.  The released code counts MB. */
enum { UNITS = 1024 };

struct units { uint64_t bytes; int count; };

static int units_taken(const struct units *units, uint64_t memory)
{
    const uint64_t n = (memory + units->bytes - 1) / units->bytes;
    return n > (uint64_t)units->count ? units->count + 1 : n < 1 ? 1 : (int)n;
}

/* Units of a layer in a stage, with the microbatches in flight there; more than all units: it cannot have them. */
static int layer_units(const struct layer_search *search, const struct layer_plan *plan, int stage, int layer, int s,
                       const struct units *units)
{
    const struct layer_table *const table = search->table;
    if (table->strategy[s].devices != plan->devices[stage] || !layer_cost_of(table, layer, s)->there)
        return units->count + 1;
    return units_taken(units, layer_memory(table, layer, s, layer_flight(table, plan->stages - stage)));
}

/* The tables of one stage: f of the layer before and of this one, and for each layer which strategy came before. */
struct memory_table { picoseconds *now, *next; int16_t *mark; };

static const picoseconds NEVER = INT64_MAX / 4;

/* The best strategy of the layer before, with v units for all layers up to it. */
static picoseconds from_before(const struct layer_table *table, const picoseconds *now, int v, int s, int16_t *mark)
{
    picoseconds best = NEVER;
    for (int t = 0; t < table->strategies; t++) {
        const picoseconds f = now[v * table->strategies + t];
        if (f >= NEVER) continue;
        const picoseconds with = f + layer_edge(table, t, s);
        if (with < best) best = with, *mark = (int16_t)t;
    }
    return best;
}

/* One layer: f for all units and strategies. */
static void add_layer(const struct layer_search *search, const struct layer_plan *plan, int stage, int layer,
                      const struct units *units, struct memory_table *tables)
{
    const struct layer_table *const table = search->table;
    const int K = table->strategies;
    int16_t *const mark = tables->mark + (size_t)(layer - plan->first[stage]) * (size_t)(units->count + 1) * (size_t)K;
    for (int s = 0; s < K; s++) {
        const int takes = layer_units(search, plan, stage, layer, s, units);
        for (int v = 0; v <= units->count; v++) {
            picoseconds best = NEVER;
            if (v >= takes && layer == plan->first[stage]) best = 0;
            else if (v >= takes) best = from_before(table, tables->now, v - takes, s, &mark[v * K + s]);
            tables->next[v * K + s] = best < NEVER ? best + layer_time(table, layer, s) : NEVER;
        }
    }
    picoseconds *const swap = tables->now;
    tables->now = tables->next, tables->next = swap;
}

/* Walk back from the best strategy of the last layer.  @return whether there is one. */
static bool trace_stage(const struct layer_search *search, struct layer_plan *plan, int stage,
                        const struct units *units, const struct memory_table *tables)
{
    const struct layer_table *const table = search->table;
    const int K = table->strategies;
    int v = units->count, best = -1;
    for (int s = 0; s < K; s++)
        if (tables->now[v * K + s] < NEVER && (best < 0 || tables->now[v * K + s] < tables->now[v * K + best]))
            best = s;
    if (best < 0) return false;
    for (int layer = plan->first[stage + 1] - 1; layer >= plan->first[stage]; layer--) {
        const int takes = layer_units(search, plan, stage, layer, best, units);
        plan->strategy[layer] = best;
        best = tables->mark[((size_t)(layer - plan->first[stage]) * (size_t)(units->count + 1) + (size_t)v)
                            * (size_t)K + (size_t)best];
        v -= takes;
    }
    return true;
}

static bool solve_stage(struct layer_search *search, struct layer_plan *plan, int stage, const struct units *units,
                        struct memory_table *tables)
{
    for (int layer = plan->first[stage]; layer < plan->first[stage + 1]; layer++)
        add_layer(search, plan, stage, layer, units, tables);
    search->looked += (int64_t)(plan->first[stage + 1] - plan->first[stage]) * units->count;
    return trace_stage(search, plan, stage, units, tables);
}

/* Layers may have what the memory leaves beside them. */
static struct units units_for(const struct layer_search *search, int devices)
{
    const struct layer_table *const table = search->table;
    const uint64_t beside = table->beside[layer_size_find(table, devices)];
    if (search->memory == 0) return (struct units){ UINT64_MAX / 2, table->layers };     /* a unit for each layer */
    if (search->memory <= beside) return (struct units){ 1, 0 };
    const uint64_t cap = search->memory - beside;
    if (cap <= UNITS) return (struct units){ 1, (int)cap };
    const uint64_t bytes = (cap + UNITS - 1) / UNITS;
    return (struct units){ bytes, (int)(cap / bytes) };
}

static enum error_code solve_evenly(struct layer_search *search, int devices, struct error *err)
{
    const struct layer_table *const table = search->table;
    struct layer_plan plan;
    if (layer_size_find(table, devices) < 0 || !layer_plan_evenly(table, devices, &plan)) return OK;
    const struct units units = units_for(search, devices);
    const int last = table->layers - plan.first[plan.stages - 1];
    const size_t row = (size_t)(units.count + 1) * (size_t)table->strategies;
    struct memory_table tables = { malloc(row * sizeof *tables.now), malloc(row * sizeof *tables.next),
                                   malloc(row * (size_t)last * sizeof *tables.mark) };
    const bool room = tables.now && tables.next && tables.mark;
    bool solved = room;
    for (int s = 0; s < plan.stages && solved; s++) solved = solve_stage(search, &plan, s, &units, &tables);
    if (solved) layer_search_offer(search, &plan);
    if (units.bytes > 1 && search->memory > 0) search->thinned = true;
    free(tables.now), free(tables.next), free(tables.mark);
    return room ? OK : fail(err, ERR_MEMORY, "no memory for %d units of %d strategies", units.count,
                            table->strategies);
}

static enum error_code galvatron_solve(struct layer_search *search, struct error *err)
{
    enum error_code e = OK;
    if (search->table->link)
        return fail(err, ERR_PLAN, "--planner galvatron: the table is a graph; its layers must follow each other; "
                    "tensoropt and mindspore take graphs");
    for (int stages = 1; stages <= search->table->devices && !e; stages *= 2)
        if (search->table->devices % stages == 0) e = solve_evenly(search, search->table->devices / stages, err);
    return e;
}

const struct planner planner_galvatron = {
    .name = "galvatron", .description = "layer by layer over units of memory, in even stages",
    .source = "X. Miao et al., Galvatron (PKU), arXiv:2211.13878; not E. Gumaan's of that name, arXiv:2504.03662",
    .promise = "no plan with as even stages is faster by the table and fits, up to a unit of memory",
    .solve = galvatron_solve, .exact_of = LAYERS_EVEN,
};
