/* chain.c -- makes the frontier of a run of layers, layer by layer.  The planners of this folder call.  Without memory
 * the code is ERR_MEMORY.
 *
 * Source   the recurrence of Galvatron and of TensorOpt's line (galvatron.c, tensoropt.c), over points in place of
 *          units of memory
 */
#include "emulated_devices/search/layers/chain.h"
#include <stdlib.h>
#include <string.h>

/* A table with so many pairs of layer and strategy has its whole frontier; those of models with 80 layers have some
 * thousand points, of which 48 lose less than 1 % of the time (tests/devices/test_planners.c). */
enum { CHAIN_SMALL = 1024, CHAIN_ALL = 1 << 20, CHAIN_FEW = 48 };

int chain_usual_most(const struct layer_table *table)
{
    return table->layers * table->strategies <= CHAIN_SMALL ? CHAIN_ALL : CHAIN_FEW;
}

/* ---- dropping points --------------------------------------------------------------------------------------------- */

static int in_memory(const void *a, const void *b)
{
    const struct chain_point *x = a, *y = b;
    if (x->memory != y->memory) return x->memory < y->memory ? -1 : 1;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->strategy != y->strategy) return x->strategy - y->strategy;
    return x->before - y->before;
}

static int in_computing(const void *a, const void *b)
{
    const struct chain_point *x = a, *y = b;
    if (x->computing != y->computing) return x->computing < y->computing ? -1 : 1;
    return in_memory(a, b);
}

/* The fastest of each of `most` equal ranges of memory stays, and the point with least memory of all. */
static int thin(struct chain_point *point, int count, int most)
{
    const uint64_t least = point[0].memory, width = (point[count - 1].memory - least) / (uint64_t)most + 1;
    int kept = 0;
    for (int i = 0; i < count; i++) {
        const bool last = i + 1 == count || (point[i + 1].memory - least) / width != (point[i].memory - least) / width;
        if (i == 0 || last) point[kept++] = point[i];
    }
    return kept;
}

/* One point stays, in the first place. */
static int keep_least(struct chain_point *point, int count, enum chain_rule rule)
{
    int best = 0;
    for (int i = 1; i < count; i++) {
        const struct chain_point *const a = &point[i], *const b = &point[best];
        const bool faster = a->time < b->time, leaner = a->memory < b->memory;
        if (rule == BY_TIME ? faster || (a->time == b->time && leaner)
                            : leaner || (a->memory == b->memory && faster)) best = i;
    }
    point[0] = point[best];
    return 1;
}

int chain_reduce(struct chain_point *point, int count, enum chain_rule rule, int most, bool *thinned)
{
    const bool memory = rule == BY_TIME_AND_MEMORY;
    int kept = 0;
    if (count == 0) return 0;
    if (rule >= BY_TIME) return keep_least(point, count, rule);
    qsort(point, (size_t)count, sizeof *point, memory ? in_memory : in_computing);
    for (int i = 0; i < count; i++) {
        const struct chain_point *const last = kept > 0 ? &point[kept - 1] : NULL;
        const bool better = last == NULL || (memory ? point[i].time < last->time
                                             : point[i].time - point[i].computing < last->time - last->computing);
        if (better) point[kept++] = point[i];
    }
    if (kept <= most) return kept;
    *thinned = true;
    /* The other rule's points are in no order of memory: the first ones compute least. */
    return memory ? thin(point, kept, most) : most;
}

/* ---- one layer more ---------------------------------------------------------------------------------------------- */

/* A growing list of points. */
struct scratch { struct chain_point *of; int count, room; };

static enum error_code scratch_add(struct scratch *scratch, struct chain_point point, struct error *err)
{
    if (scratch->count == scratch->room) {
        const int room = 2 * scratch->room + 256;
        struct chain_point *const more = realloc(scratch->of, (size_t)room * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for %d points of a frontier", room);
        scratch->of = more, scratch->room = room;
    }
    scratch->of[scratch->count++] = point;
    return OK;
}

/* Begin with what the layers before take, and the edge to this layout. */
static enum error_code chain_begin(const struct chain *chain, int at, int layout, struct scratch *base,
                                   struct error *err)
{
    const struct layer_table *const table = chain->table;
    enum error_code e = OK;
    base->count = 0;
    if (at == 0) return scratch_add(base, (struct chain_point){ .strategy = -1, .before = -1 }, err);
    for (int l = 0; l < table->layouts; l++) {
        const struct chain_list list = chain->list[(at - 1) * table->layouts + l];
        const picoseconds edge = chain->backwards ? table->edge[layout * table->layouts + l]
                                                  : table->edge[l * table->layouts + layout];
        for (int i = list.first; i < list.first + list.count && !e; i++) {
            struct chain_point p = chain->of[i];
            p.time += edge, p.before = i;
            e = scratch_add(base, p, err);
        }
    }
    return e;
}

/* Every strategy of a layout continues every point. */
static enum error_code chain_continue(const struct chain *chain, int at, int layout, const struct scratch *base,
                                      struct scratch *next, struct error *err)
{
    const struct layer_table *const table = chain->table;
    const int layer = chain->backwards ? chain->first - at : chain->first + at;
    enum error_code e = OK;
    next->count = 0;
    for (int s = 0; s < table->strategies; s++) {
        const struct layer_cost *const cost = layer_cost_of(table, layer, s);
        const struct strategy *const strategy = &table->strategy[s];
        if (strategy->devices != chain->devices || strategy->layout != layout || !cost->there ||
            (chain->takes && !chain->takes(strategy))) continue;
        const picoseconds time = layer_time(table, layer, s);
        const uint64_t memory = layer_memory(table, layer, s, chain->flight);
        for (int i = 0; i < base->count && !e; i++) {
            struct chain_point p = base->of[i];
            p.time += time, p.computing += cost->computing, p.memory += memory, p.strategy = s;
            if (p.memory <= chain->cap) e = scratch_add(next, p, err);
        }
    }
    return e;
}

static enum error_code chain_keep(struct chain *chain, int at, int layout, struct scratch *next, struct error *err)
{
    const int count = chain_reduce(next->of, next->count, chain->rule, chain->most, &chain->thinned);
    struct scratch all = { chain->of, chain->count, chain->room };
    enum error_code e = OK;
    chain->list[at * chain->table->layouts + layout] = (struct chain_list){ chain->count, count };
    for (int i = 0; i < count && !e; i++) e = scratch_add(&all, next->of[i], err);
    chain->of = all.of, chain->count = all.count, chain->room = all.room;
    return e;
}

enum error_code chain_open(struct chain *chain, struct error *err)
{
    const struct layer_table *const table = chain->table;
    struct scratch base = { NULL, 0, 0 }, next = { NULL, 0, 0 };
    chain->of = NULL, chain->count = chain->room = 0, chain->thinned = false;
    chain->list = calloc((size_t)(chain->length * table->layouts), sizeof *chain->list);
    enum error_code e = chain->list ? OK : fail(err, ERR_MEMORY, "no memory for a chain of %d layers", chain->length);
    for (int at = 0; at < chain->length && !e; at++)
        for (int l = 0; l < table->layouts && !e; l++) {
            e = chain_begin(chain, at, l, &base, err);
            if (!e) base.count = chain_reduce(base.of, base.count, chain->rule, chain->most, &chain->thinned);
            if (!e) e = chain_continue(chain, at, l, &base, &next, err);
            if (!e) e = chain_keep(chain, at, l, &next, err);
        }
    free(base.of), free(next.of);
    if (e) chain_close(chain);
    return e;
}

void chain_close(struct chain *chain)
{
    free(chain->of), free(chain->list);
    chain->of = NULL, chain->list = NULL;
}

int chain_fastest(const struct chain *chain, int length)
{
    const int layouts = chain->table->layouts;
    int best = -1;
    for (int l = 0; l < layouts; l++) {
        const struct chain_list list = chain->list[(length - 1) * layouts + l];
        for (int i = list.first; i < list.first + list.count; i++)
            if (best < 0 || chain->of[i].time < chain->of[best].time ||
                (chain->of[i].time == chain->of[best].time && chain->of[i].memory < chain->of[best].memory)) best = i;
    }
    return best;
}

void chain_trace(const struct chain *chain, int point, int length, int strategy[])
{
    for (int at = length - 1; at >= 0; at--, point = chain->of[point].before)
        strategy[chain->backwards ? chain->first - at : chain->first + at] = chain->of[point].strategy;
}
