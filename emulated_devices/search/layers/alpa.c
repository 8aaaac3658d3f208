/* alpa.c -- Alpa: strategies inside stages under the memory, and stages by dynamic programming over the longest one.
 *
 * Inside a stage the least time under the memory is exact (stages.h), which is what the paper asks an integer program
 * for.  Stages may have different numbers of layers and devices.  For each bound of a stage's time, from the least with
 * which there is a plan:
 *
 *     g[k][i][d][n] = min over j of least(i..j-1 on n devices, k) + min over n' of hop(n, n') + g[k-1][j][d-n][n']
 *
 * is the sum of k stages, the first of them on n devices, for layers from i on and d devices.  k counts down to the end
 * of the pipeline, so that it says how many microbatches a stage has in flight.  The search ends when
 * (microbatches - 1) x bound alone takes as long as the best plan.
 *
 * The released code skips bounds that are less than 1e-6 apart, so with times of nanoseconds it finds no plan; here
 * bounds are whole numbers, all of a small table, and of a large one 64 in equal ratios.
 *
 * Source   L. Zheng et al., Alpa, arXiv:2201.12023, section 5; alpa/pipeline_parallel/stage_construction.py
 */
#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/layers/stages.h"
#include "emulated_devices/search/planner.h"
#include <math.h>
#include <stdlib.h>

enum { BOUNDS_FEW = 64, BOUNDS_SMALL = 4096 };

static const picoseconds NO_PLAN = INT64_MAX / 4;

struct inter {
    struct layer_search *search;
    struct stage_costs costs;
    int unit, units, stages;            /* devices are counted in units; most stages */
    picoseconds *sum;                   /* g, [stages + 1][layers + 1][units + 1][sizes] */
    int16_t *end, *next;                /* where the first stage ends, and the size of the next one */
    picoseconds *bound;                 /* [bounds] times of stages, ascending */
    int bounds;
};

static size_t inter_at(const struct inter *inter, int k, int layer, int units, int size)
{
    const struct layer_table *const table = inter->search->table;
    return (((size_t)k * (size_t)(table->layers + 1) + (size_t)layer) * (size_t)(inter->units + 1) + (size_t)units)
           * (size_t)table->sizes + (size_t)size;
}

static int common_divisor(int a, int b)
{
    while (b != 0) {
        const int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

static enum error_code inter_open(struct inter *inter, struct layer_search *search, struct error *err)
{
    const struct layer_table *const table = search->table;
    *inter = (struct inter){ .search = search };
    for (int z = 0; z < table->sizes; z++) inter->unit = common_divisor(table->size[z], inter->unit);
    inter->units = table->devices / inter->unit;
    inter->stages = table->devices / table->size[0];
    if (inter->stages > table->layers) inter->stages = table->layers;
    if (inter->stages > STAGES_MOST) inter->stages = STAGES_MOST;
    const size_t room = inter_at(inter, inter->stages + 1, 0, 0, 0);
    inter->sum = malloc(room * sizeof *inter->sum);
    inter->end = malloc(room * sizeof *inter->end), inter->next = malloc(room * sizeof *inter->next);
    const enum error_code e = stage_costs_open(&inter->costs, table, search->memory, NULL, err);
    if (e || (inter->sum && inter->end && inter->next)) return e;
    return fail(err, ERR_MEMORY, "no memory for %d stages of %d layers", inter->stages, table->layers);
}

static void inter_close(struct inter *inter)
{
    stage_costs_close(&inter->costs);
    free(inter->sum), free(inter->end), free(inter->next), free(inter->bound);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b)
{
    const picoseconds x = *(const picoseconds *)a, y = *(const picoseconds *)b;
    return x < y ? -1 : x > y;
}

/* Some of many bounds stay, in equal ratios from the first to the last. */
static void inter_thin(struct inter *inter)
{
    int kept = 0;
    if (inter->bounds <= BOUNDS_SMALL) return;
    inter->search->thinned = true;
    double step = (double)inter->bound[inter->bounds - 1] / (double)inter->bound[0];
    for (int n = BOUNDS_FEW; n > 1; n /= 2) step = sqrt(step);      /* rounded alike on every machine */
    for (int i = 0; i < inter->bounds; i++)
        if (i == inter->bounds - 1 || kept == 0 || (double)inter->bound[i] >= step * (double)inter->bound[kept - 1])
            inter->bound[kept++] = inter->bound[i];
    inter->bounds = kept;
}

/* All times that a stage may have, where it may begin. */
static enum error_code inter_bounds(struct inter *inter, struct error *err)
{
    const struct layer_table *const table = inter->search->table;
    const int L = table->layers, flights = inter->costs.flights;
    const size_t room = (size_t)(table->sizes * flights) * (size_t)(L * (L + 1) / 2)
                        * (size_t)(table->percent ? inter->units : 1);
    enum error_code e = OK;
    inter->bound = malloc(room * sizeof *inter->bound);
    if (inter->bound == NULL) return fail(err, ERR_MEMORY, "no memory for the times of stages");
    for (int z = 0; z < table->sizes && !e; z++)
        for (int from = 0; from < L && !e; from++)
            for (int to = from + 1; to <= L && !e; to++)
                for (int flight = 1; flight <= flights && !e; flight++) {
                    picoseconds time;
                    e = stage_least(&inter->costs, from, to, z, flight, &time, err);
                    if (e || time < 0) continue;
                    for (int d = 0; d + table->size[z] <= table->devices; d += table->size[z]) {
                        inter->bound[inter->bounds++] = layer_slowed(table, time, d, table->size[z]);
                        if (table->percent == NULL) break;
                    }
                }
    qsort(inter->bound, (size_t)inter->bounds, sizeof *inter->bound, ascending);
    int kept = 0;
    for (int i = 0; i < inter->bounds; i++)
        if (kept == 0 || inter->bound[i] != inter->bound[kept - 1]) inter->bound[kept++] = inter->bound[i];
    inter->bounds = kept;
    if (kept > 0) inter_thin(inter);
    return e;
}

/* ---- the recurrence ---------------------------------------------------------------------------------------------- */

/* The least sum behind a stage of this size. */
static picoseconds least_behind(const struct inter *inter, int k, int layer, int units, int size, int16_t *next)
{
    const struct layer_table *const table = inter->search->table;
    picoseconds best = NO_PLAN;
    if (k == 0) return layer == table->layers && units == 0 ? 0 : NO_PLAN;
    for (int z = 0; z < table->sizes; z++) {
        const picoseconds sum = inter->sum[inter_at(inter, k, layer, units, z)];
        if (sum < NO_PLAN && sum + table->hop[size][z] < best) best = sum + table->hop[size][z], *next = (int16_t)z;
    }
    return best;
}

/* Layers from `layer` on with so many units of devices left, in k stages; the first on devices of this size. */
static enum error_code inter_cell(struct inter *inter, int k, int layer, int units, int size, picoseconds bound,
                                  struct error *err)
{
    const struct layer_table *const table = inter->search->table;
    const int devices = table->size[size], before = table->devices - units * inter->unit, left = units -
        devices / inter->unit;
    const size_t at = inter_at(inter, k, layer, units, size);
    inter->sum[at] = NO_PLAN;
    if (left < 0 || !layer_stage_begins(before, devices)) return OK;
    for (int end = layer + 1; end <= table->layers - (k - 1); end++) {
        picoseconds time;
        int16_t next = 0;
        if (k == 1 && end < table->layers) end = table->layers;
        const enum error_code e = stage_least(&inter->costs, layer, end, size, layer_flight(table, k), &time, err);
        if (e) return e;
        time = time < 0 ? NO_PLAN : layer_slowed(table, time, before, devices);
        if (time > bound) break;                        /* more layers take longer */
        const picoseconds behind = least_behind(inter, k - 1, end, left, size, &next);
        if (behind < NO_PLAN && time + behind < inter->sum[at])
            inter->sum[at] = time + behind, inter->end[at] = (int16_t)end, inter->next[at] = next;
    }
    return OK;
}

/* Fill the table for a bound.  @param[out] stages, size  of the least sum. */
static enum error_code inter_fill(struct inter *inter, picoseconds bound, picoseconds *least, int *stages, int *size,
                                  struct error *err)
{
    const struct layer_table *const table = inter->search->table;
    enum error_code e = OK;
    *least = NO_PLAN;
    for (int k = 1; k <= inter->stages && !e; k++) {
        for (int layer = table->layers - k; layer >= 0 && !e; layer--)
            for (int units = 0; units <= inter->units && !e; units++)
                for (int z = 0; z < table->sizes && !e; z++) e = inter_cell(inter, k, layer, units, z, bound, err);
        for (int z = 0; z < table->sizes && !e; z++) {
            const picoseconds sum = inter->sum[inter_at(inter, k, 0, inter->units, z)];
            if (sum < *least) *least = sum, *stages = k, *size = z;
        }
    }
    inter->search->looked += inter->stages * table->layers * inter->units * table->sizes;
    return e;
}

/* Read the plan out of the filled table. */
static enum error_code inter_trace(struct inter *inter, int stages, int size, struct error *err)
{
    const struct layer_table *const table = inter->search->table;
    struct layer_plan plan = { .stages = stages };
    int layer = 0, units = inter->units;
    enum error_code e = OK;
    for (int s = 0; s < stages && !e; s++) {
        const size_t at = inter_at(inter, stages - s, layer, units, size);
        plan.first[s] = layer, plan.devices[s] = table->size[size];
        e = stage_trace(&inter->costs, layer, inter->end[at], size, layer_flight(table, stages - s), plan.strategy,
                        err);
        units -= table->size[size] / inter->unit, layer = inter->end[at], size = inter->next[at];
    }
    plan.first[stages] = table->layers;
    if (!e) layer_search_offer(inter->search, &plan);
    return e;
}

/* The first bound with which there is a plan: with every higher one there is one, too. */
static enum error_code inter_first(struct inter *inter, int *first, struct error *err)
{
    int low = 0, high = inter->bounds, stages, size;
    picoseconds least;
    enum error_code e = OK;
    while (low < high && !e) {
        const int middle = (low + high) / 2;
        e = inter_fill(inter, inter->bound[middle], &least, &stages, &size, err);
        if (least < NO_PLAN) high = middle;
        else low = middle + 1;
    }
    *first = low;
    return e;
}

static enum error_code inter_solve(struct inter *inter, struct error *err)
{
    const picoseconds more = inter->search->table->micros - 1;
    picoseconds least, least_of_all;
    int first = 0, stages, size;
    enum error_code e = inter_bounds(inter, err);
    if (!e) e = inter_first(inter, &first, err);
    if (e || first == inter->bounds) return e;
    e = inter_fill(inter, inter->bound[inter->bounds - 1], &least_of_all, &stages, &size, err);
    for (int i = first; i < inter->bounds && !e; i++) {
        if (inter->search->found && more * inter->bound[i] + least_of_all >= inter->search->verdict.time) break;
        e = inter_fill(inter, inter->bound[i], &least, &stages, &size, err);
        if (!e) e = inter_trace(inter, stages, size, err);
    }
    return e;
}

static enum error_code alpa_solve(struct layer_search *search, struct error *err)
{
    struct inter inter;
    if (search->table->link)
        return fail(err, ERR_PLAN, "--planner alpa: the table is a graph; its layers must follow each other; "
                    "tensoropt and mindspore take graphs");
    enum error_code e = inter_open(&inter, search, err);
    if (!e) e = inter_solve(&inter, err);
    search->thinned = search->thinned || inter.costs.thinned;
    inter_close(&inter);
    return e;
}

const struct planner planner_alpa = {
    .name = "alpa", .description = "strategies in stages under the memory, stages by their longest time",
    .source = "L. Zheng et al., Alpa, arXiv:2201.12023; an exact frontier in place of its integer program",
    .promise = "no plan by layers is faster by the table, and fits",
    .solve = alpa_solve, .exact_of = LAYERS_ALL,
};
