/* routing_drops.c -- choices that an expert has no room for.  If an expert keeps those of the first rows, drops
 * follow from the choices.  If it keeps the largest weights, rounding decides between two weights that are nearly
 * equal (routing.h). The caller is routing.c; the only error is ERR_MEMORY, when drops are opened. */
#include "emulated_devices/verify/reference/routing.h"
#include "ref/numeric/distance.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum error_code routing_drops_open(struct routing_drops *drops, const struct model_config *config, int64_t tokens,
                                   struct error *err)
{
    const size_t choices = (size_t)(2 * tokens * config->mixture.k);
    *drops = (struct routing_drops){ .E = config->mixture.E, .by_weight = config->mixture.drops_by_weight };
    /* Without a capacity nothing is dropped, and the other functions return at once. */
    if (!(config->mixture.capacity_factor > 0)) return OK;
    drops->experts = calloc(choices, sizeof *drops->experts);
    drops->weights = calloc(choices, sizeof *drops->weights);
    drops->bound = calloc((size_t)config->L, sizeof *drops->bound);
    drops->found = calloc((size_t)config->L, sizeof *drops->found);
    return drops->experts && drops->weights && drops->bound && drops->found
               ? OK
               : fail(err, ERR_MEMORY, "no memory for %zu dropped choices", choices);
}

void routing_drops_close(struct routing_drops *drops)
{
    free(drops->experts), free(drops->weights), free(drops->bound), free(drops->found);
    *drops = (struct routing_drops){ 0 };
}

void routing_drops_begin(struct routing *routing, const struct transformer *truth)
{
    struct routing_drops *const d = &routing->drops;
    const struct mixture_config *c = &truth->config.mixture;
    d->S = truth->S;
    d->capacity = c->capacity_factor > 0 ? mixture_capacity(c, truth->S) : 0;
}

/* ---- the bound --------------------------------------------------------------------------------------------------- */

static size_t choices(const struct routing *routing) { return (size_t)(routing->N * routing->k); }

/* The weights of a layer's choices as they are before any is dropped, in the logits' format. */
static struct tensor routing_drops_weights_of(const struct routing *routing, int layer, struct tensor logits,
                                              double *memory)
{
    const struct tensor weights = tensor_2d(memory, logits.dtype, routing->N, routing->k);
    ops_for(logits.dtype)->route_weights(weights, tensor_2d(routing_of_layer(routing, routing->experts, layer), I32,
                                                            routing->N, routing->k),
                                         logits, &routing->rule);
    return weights;
}

void routing_drops_measure(struct routing *routing, int layer, struct tensor truth, struct tensor twin)
{
    struct routing_drops *const d = &routing->drops;
    double far = 0, large = 0;
    if (d->capacity == 0) return;
    const struct tensor a = routing_drops_weights_of(routing, layer, truth, d->weights),
                        b = routing_drops_weights_of(routing, layer, twin, d->weights + choices(routing));
    for (int64_t i = 0; i < tensor_count(a); i++) {
        const double off = fabs(tensor_get(b, i) - tensor_get(a, i));
        if (exceeds(off, far)) far = off;
        if (exceeds(fabs(tensor_get(a, i)), large)) large = fabs(tensor_get(a, i));
    }
    d->bound[layer] = 2 * (far + 2 * dtype_unit(truth.dtype) * large);
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

/* A load has the choices of one expert in one sequence: [first, first + S k) of all. */
struct load { int64_t first, count; int32_t expert; };

/* This says which of a load only one of both drops, and how far rounding has to go for that: see routing_found. */
struct dropped { int64_t differ, place; double margin; };

/* Compare which choices of one expert both drop.  The margin is the largest dropped weight minus the least kept one.
 * Both must drop equally many choices, or no rounding explains the difference: NaN. */
static struct dropped compare_load(const struct load *load, struct tensor weights, const int32_t *own,
                                   const int32_t *theirs)
{
    double most = -INFINITY, least = INFINITY;                  /* dropped by the device, kept by it */
    int64_t balance = 0;
    struct dropped x = { .place = -1 };
    /* own and theirs [S k]: a negative entry is a dropped choice. */
    for (int64_t i = load->first; i < load->first + load->count; i++) {
        if (choice_made(own[i]) != load->expert) continue;
        const double w = tensor_get(weights, i);
        if (theirs[i] < 0 && own[i] >= 0 && w > most) most = w, x.place = i;
        if (theirs[i] >= 0 && own[i] < 0) least = fmin(least, w), x.place = x.place < 0 ? i : x.place;
        x.differ += (theirs[i] < 0) != (own[i] < 0);
        balance += (theirs[i] < 0) - (own[i] < 0);
    }
    x.margin = balance == 0 ? most - least : NAN;
    return x;
}

/* Take what the device drops of an expert's choices, if rounding explains it. */
static void decide_load(struct routing *routing, int layer, const struct load *load, struct tensor weights,
                        const int32_t *own, int32_t *theirs)
{
    struct routing_found *const f = &routing->drops.found[layer];
    const struct dropped x = compare_load(load, weights, own, theirs);
    if (x.differ == 0) return;
    if (routing_is_worse(x.margin, routing->drops.bound[layer], f))
        *f = (struct routing_found){ .differ = f->differ, .token = x.place / routing->k, .own = own[x.place],
                                     .theirs = theirs[x.place], .margin = x.margin,
                                         .bound = routing->drops.bound[layer] };
    f->differ += x.differ;
    if (x.margin <= routing->drops.bound[layer]) return;
    for (int64_t i = load->first; i < load->first + load->count; i++)
        if (choice_made(own[i]) == load->expert) theirs[i] = own[i];
}

void routing_drops_set_aside(struct routing *routing, int layer)
{
    int32_t *const theirs = routing_of_layer(routing, routing->experts, layer),
        *const aside = routing->drops.experts + choices(routing);
    if (routing->drops.capacity == 0) return;
    /* The second half of the scratch keeps which choices the devices have dropped, for take_back. */
    memcpy(aside, theirs, choices(routing) * sizeof *theirs);
    for (size_t i = 0; i < choices(routing); i++) theirs[i] = choice_made(theirs[i]);
}

/* Take back what the devices drop, of the choices that are still theirs.  Only experts that compute may drop. */
static void take_back(struct routing *routing, int32_t *theirs)
{
    const int32_t *const aside = routing->drops.experts + choices(routing);
    for (size_t i = 0; i < choices(routing); i++)
        if (theirs[i] >= 0 && theirs[i] < routing->drops.E && aside[i] == choice_dropped(theirs[i]))
            theirs[i] = aside[i];
}

void routing_drops_decide(struct routing *routing, int layer, struct tensor logits)
{
    struct routing_drops *const d = &routing->drops;
    int32_t *const theirs = routing_of_layer(routing, routing->experts, layer), *const own = d->experts;
    const int64_t places = d->S * routing->k;
    if (d->capacity == 0) return;
    take_back(routing, theirs);
    const struct tensor weights = routing_drops_weights_of(routing, layer, logits, d->weights),
                        spoilt = routing_drops_weights_of(routing, layer, logits, d->weights + choices(routing));
    for (size_t i = 0; i < choices(routing); i++) own[i] = choice_made(theirs[i]);
    /* own [N, k] = what the truth itself would drop; route_drop spoils the second copy of the weights. */
    ops_for(logits.dtype)->route_drop(spoilt, tensor_2d(own, I32, routing->N, routing->k), d->S, d->E, d->capacity,
                                      d->by_weight);
    /* A rule by rows follows from the choices alone: the truth's drops stand, and the loop below finds no
     * difference. */
    if (!d->by_weight) memcpy(theirs, own, choices(routing) * sizeof *own);
    for (struct load l = { .count = places }; l.first < routing->N * routing->k; l.first += places)
        for (l.expert = 0; l.expert < d->E && routing_counts(routing, layer, l.first / routing->k); l.expert++)
            decide_load(routing, layer, &l, weights, own, theirs);
}
