/* Choices that an expert has no room for.  If an expert keeps those of the first rows, they follow from the choices.
 * If it keeps the largest weights, rounding decides between two weights that are nearly equal (routing.h). */
#include "emulated_devices/verify/reference/routing.h"
#include "ref/numeric/distance.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum error_code routing_drops_open(struct routing_drops *d, const struct model_config *c, int64_t tokens,
                                   struct error *err)
{
    const size_t choices = (size_t)(2 * tokens * c->mixture.k);
    *d = (struct routing_drops){ .E = c->mixture.E, .by_weight = c->mixture.drops_by_weight };
    if (!(c->mixture.capacity_factor > 0)) return OK;
    d->experts = calloc(choices, sizeof *d->experts);
    d->weights = calloc(choices, sizeof *d->weights);
    d->bound = calloc((size_t)c->L, sizeof *d->bound);
    d->found = calloc((size_t)c->L, sizeof *d->found);
    return d->experts && d->weights && d->bound && d->found
               ? OK
               : fail(err, ERR_MEMORY, "no memory for %zu dropped choices", choices);
}

void routing_drops_close(struct routing_drops *d)
{
    free(d->experts), free(d->weights), free(d->bound), free(d->found);
    *d = (struct routing_drops){ 0 };
}

void routing_drops_begin(struct routing *r, const struct transformer *truth)
{
    struct routing_drops *const d = &r->drops;
    const struct mixture_config *c = &truth->config.mixture;
    d->S = truth->S;
    d->capacity = c->capacity_factor > 0 ? mixture_capacity(c, truth->S) : 0;
}

/* ---- the bound --------------------------------------------------------------------------------------------------- */

static size_t choices(const struct routing *r) { return (size_t)(r->N * r->k); }

/* The weights of a layer's choices as they are before any is dropped, in the logits' format. */
static struct tensor weights_of(const struct routing *r, int layer, struct tensor logits, double *memory)
{
    const struct tensor weights = tensor_2d(memory, logits.dtype, r->N, r->k);
    ops_for(logits.dtype)->route_weights(weights, tensor_2d(routing_of_layer(r, r->experts, layer), I32, r->N, r->k),
                                         logits, &r->rule);
    return weights;
}

void routing_drops_measure(struct routing *r, int layer, struct tensor truth, struct tensor twin)
{
    struct routing_drops *const d = &r->drops;
    double far = 0, large = 0;
    if (d->capacity == 0) return;
    const struct tensor a = weights_of(r, layer, truth, d->weights),
                        b = weights_of(r, layer, twin, d->weights + choices(r));
    for (int64_t i = 0; i < tensor_count(a); i++) {
        const double off = fabs(tensor_get(b, i) - tensor_get(a, i));
        if (exceeds(off, far)) far = off;
        if (exceeds(fabs(tensor_get(a, i)), large)) large = fabs(tensor_get(a, i));
    }
    d->bound[layer] = 2 * (far + 2 * dtype_unit(truth.dtype) * large);
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

/* The choices of one expert in one sequence: [first, first + S k) of all. */
struct load { int64_t first, count; int32_t expert; };

/* What of it is dropped in only one of both, and how far rounding has to go for that: see routing_found. */
struct dropped { int64_t differ, place; double margin; };

static struct dropped compare_load(const struct load *l, struct tensor weights, const int32_t *own,
                                   const int32_t *theirs)
{
    double most = -INFINITY, least = INFINITY;                  /* dropped by the device, kept by it */
    int64_t balance = 0;
    struct dropped x = { .place = -1 };
    for (int64_t i = l->first; i < l->first + l->count; i++) {
        if (choice_made(own[i]) != l->expert) continue;
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
static void decide_load(struct routing *r, int layer, const struct load *l, struct tensor weights, const int32_t *own,
                        int32_t *theirs)
{
    struct routing_found *const f = &r->drops.found[layer];
    const struct dropped x = compare_load(l, weights, own, theirs);
    if (x.differ == 0) return;
    if (routing_is_worse(x.margin, r->drops.bound[layer], f))
        *f = (struct routing_found){ .differ = f->differ, .token = x.place / r->k, .own = own[x.place],
                                     .theirs = theirs[x.place], .margin = x.margin, .bound = r->drops.bound[layer] };
    f->differ += x.differ;
    if (x.margin <= r->drops.bound[layer]) return;
    for (int64_t i = l->first; i < l->first + l->count; i++)
        if (choice_made(own[i]) == l->expert) theirs[i] = own[i];
}

void routing_drops_set_aside(struct routing *r, int layer)
{
    int32_t *const theirs = routing_of_layer(r, r->experts, layer), *const aside = r->drops.experts + choices(r);
    if (r->drops.capacity == 0) return;
    memcpy(aside, theirs, choices(r) * sizeof *theirs);
    for (size_t i = 0; i < choices(r); i++) theirs[i] = choice_made(theirs[i]);
}

/* What the devices drop, of the choices that are still theirs.  Only experts that compute may drop. */
static void take_back(struct routing *r, int32_t *theirs)
{
    const int32_t *const aside = r->drops.experts + choices(r);
    for (size_t i = 0; i < choices(r); i++)
        if (theirs[i] >= 0 && theirs[i] < r->drops.E && aside[i] == choice_dropped(theirs[i])) theirs[i] = aside[i];
}

void routing_drops_decide(struct routing *r, int layer, struct tensor logits)
{
    struct routing_drops *const d = &r->drops;
    int32_t *const theirs = routing_of_layer(r, r->experts, layer), *const own = d->experts;
    const int64_t places = d->S * r->k;
    if (d->capacity == 0) return;
    take_back(r, theirs);
    const struct tensor weights = weights_of(r, layer, logits, d->weights),
                        spoilt = weights_of(r, layer, logits, d->weights + choices(r));
    for (size_t i = 0; i < choices(r); i++) own[i] = choice_made(theirs[i]);
    ops_for(logits.dtype)->route_drop(spoilt, tensor_2d(own, I32, r->N, r->k), d->S, d->E, d->capacity, d->by_weight);
    if (!d->by_weight) memcpy(theirs, own, choices(r) * sizeof *own);
    for (struct load l = { .count = places }; l.first < r->N * r->k; l.first += places)
        for (l.expert = 0; l.expert < d->E && routing_counts(r, layer, l.first / r->k); l.expert++)
            decide_load(r, layer, &l, weights, own, theirs);
}
