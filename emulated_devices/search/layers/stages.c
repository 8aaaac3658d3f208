/* stages.c -- keeps the chains of stages, and answers from them.  alpa.c, pipedream.c and holmes.c call.  Without
 * memory the code is ERR_MEMORY. */
#include "emulated_devices/search/layers/stages.h"
#include <stdlib.h>
#include <string.h>

enum error_code stage_costs_open(struct stage_costs *costs, const struct layer_table *table, uint64_t memory,
                                 bool (*takes)(const struct strategy *), struct error *err)
{
    const int flights = table->layers < STAGES_MOST ? table->layers : STAGES_MOST;
    *costs = (struct stage_costs){ .table = table, .memory = memory, .takes = takes,
                                   .flights = flights < table->micros ? flights : table->micros };
    costs->known = calloc((size_t)(table->sizes * costs->flights) * (size_t)(table->layers * table->layers),
                          sizeof *costs->known);
    return costs->known ? OK : fail(err, ERR_MEMORY, "no memory for the stages of %d layers", table->layers);
}

void stage_costs_close(struct stage_costs *costs)
{
    for (int i = 0; i < costs->chains; i++) chain_close(&costs->chain[i]);
    free(costs->chain), free(costs->known);
    *costs = (struct stage_costs){ .table = NULL };
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

/* The first layer from which as many layers are of the same kinds, one by one. */
static int first_alike(const struct layer_table *table, int from, int length)
{
    for (int i = 0; i < from; i++)
        if (memcmp(&table->kind[i], &table->kind[from], (size_t)length * sizeof *table->kind) == 0) return i;
    return from;
}

/* Bytes that a stage's layers may have. */
static uint64_t cap_of(const struct stage_costs *costs, int size)
{
    const uint64_t beside = costs->table->beside[size];
    return costs->memory == 0 ? UINT64_MAX : costs->memory > beside ? costs->memory - beside : 0;
}

/* A run that ends with the last layer is solved backwards: all that end so are parts of one chain. */
static struct chain chain_for(const struct stage_costs *costs, int from, int to, int size, int flight,
                              enum chain_rule rule)
{
    const struct layer_table *const table = costs->table;
    const bool last = to == table->layers;
    const int first = last ? to - 1 : first_alike(table, from, to - from);
    return (struct chain){ .table = table, .first = first, .length = last ? table->layers : table->layers - first,
                           .backwards = last, .devices = table->size[size], .flight = flight, .rule = rule,
                           .cap = rule == BY_TIME_AND_MEMORY ? cap_of(costs, size) : UINT64_MAX,
                           .takes = costs->takes, .most = chain_usual_most(table) };
}

static enum error_code stage_chain(struct stage_costs *costs, struct chain like, const struct chain **out,
                                   struct error *err)
{
    for (int i = 0; i < costs->chains; i++) {
        const struct chain *const c = &costs->chain[i];
        if (c->first == like.first && c->backwards == like.backwards && c->devices == like.devices &&
            c->flight == like.flight && c->rule == like.rule) return *out = c, OK;
    }
    if (costs->chains == costs->room) {
        struct chain *more = realloc(costs->chain, (size_t)(costs->room = 2 * costs->room + 32) * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for %d chains of layers", costs->room);
        costs->chain = more;
    }
    const enum error_code e = chain_open(&like, err);
    if (e) return e;
    costs->thinned = costs->thinned || like.thinned, costs->looked += like.count;
    costs->chain[costs->chains++] = like;
    return *out = &costs->chain[costs->chains - 1], OK;
}

/* The point that answers, in its chain; -1: nothing fits. */
static enum error_code stage_point(struct stage_costs *costs, int from, int to, int size, int flight,
                                   const struct chain **chain, int *point, struct error *err)
{
    static const enum chain_rule rules[] = { BY_TIME, BY_MEMORY, BY_TIME_AND_MEMORY };
    const uint64_t cap = cap_of(costs, size);
    enum error_code e = OK;
    *point = -1;
    for (int i = 0; i < 3; i++) {
        e = stage_chain(costs, chain_for(costs, from, to, size, flight, rules[i]), chain, err);
        if (e) return e;
        const int best = chain_fastest(*chain, to - from);
        const bool fits = best >= 0 && (*chain)->of[best].memory <= cap;
        /* The fastest of all fits; or not even the one with least memory; or the frontier decides. */
        if (rules[i] == BY_TIME && fits) return *point = best, OK;
        if (rules[i] == BY_MEMORY) {
            bool any = false;
            for (int l = 0; l < costs->table->layouts; l++) {
                const struct chain_list list = (*chain)->list[(to - from - 1) * costs->table->layouts + l];
                any = any || (list.count > 0 && (*chain)->of[list.first].memory <= cap);
            }
            if (!any) return OK;
        }
        if (rules[i] == BY_TIME_AND_MEMORY) *point = best;
    }
    return OK;
}

enum error_code stage_least(struct stage_costs *costs, int from, int to, int size, int flight, picoseconds *time,
                            struct error *err)
{
    const int L = costs->table->layers;
    picoseconds *const known = &costs->known[((size_t)(size * costs->flights + flight - 1) * (size_t)L + (size_t)from)
                                             * (size_t)L + (size_t)to - 1];
    const struct chain *chain;
    int point;
    if (*known == 0) {
        const enum error_code e = stage_point(costs, from, to, size, flight, &chain, &point, err);
        if (e) return e;
        *known = point >= 0 ? chain->of[point].time : -1;
    }
    return *time = *known, OK;
}

enum error_code stage_trace(struct stage_costs *costs, int from, int to, int size, int flight, int strategy[],
                            struct error *err)
{
    const struct chain *chain;
    int point, traced[LAYERS_MOST];
    const enum error_code e = stage_point(costs, from, to, size, flight, &chain, &point, err);
    if (e || point < 0) return e;
    chain_trace(chain, point, to - from, traced);
    /* The chain may be of other layers of the same kinds. */
    const int first = chain->backwards ? from : chain->first;
    for (int l = from; l < to; l++) strategy[l] = traced[first + l - from];
    return OK;
}
