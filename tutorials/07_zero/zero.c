/* zero.c -- lesson 07: ZeRO.  README.md says what to do, zero.h what each
 * function must do. */
#include "zero.h"

double zero_memory(double parameters, int W, int stage)
{
/*SOLUTION*/
    const double states = 12 * parameters, gradients = 2 * parameters, weights = 2 * parameters;
    return states / (stage >= 1 ? W : 1) + gradients / (stage >= 2 ? W : 1) + weights / (stage >= 3 ? W : 1);
/*SKELETON
    // your code
    return 0;
*/
}

/*SOLUTION*/
static void step(const struct optimizer *o, float *weight, float *v,
                 float gradient)
{
    *v = o->beta * *v + /*MOMENTUM*/gradient/*|(1 - o->beta) * gradient*/;
    *weight = *weight - o->rate * *v;
}
/*SKELETON
// a step of one number, for both functions below, is a good function of your own; it must be static
*/

void zero1_step(const struct group *g, const struct optimizer *o,
                float *weights, const float *target, float *gradient, float *v,
                int64_t n)
{
/*SOLUTION*/
    const struct block own = block_of(n, g->size, g->rank);
    float *sum = allocate(sizeof *sum * (size_t)own.count);
    whole_gradient(weights, target, gradient, n);
    reduce_scatter(g, gradient, sum, n);
    for (int64_t k = 0; k < own.count; k++) step(o, &weights[own.start + k], &v[k], sum[k] / (float)g->size);
    memcpy(sum, weights + own.start, sizeof *sum * (size_t)own.count);
    all_gather(g, sum, weights, n);
    release(sum);
/*SKELETON
    // your code: whole_gradient, reduce_scatter, step, all_gather
*/
}

/*SOLUTION*/
/* Where this device's block of layer l begins in weights and v. */
static int64_t block_place(const struct group *g, const struct shared_model *m,
                           int l)
{
    int64_t place = 0;
    for (int i = 0; i < l; i++) place += block_of(m->count[i], g->size, g->rank).count;
    return place;
}

static float *gather(const struct group *g, const struct shared_model *m, int l)
{
    float *weights = allocate(sizeof *weights * (size_t)m->count[l]);
    all_gather(g, m->weights + block_place(g, m, l), weights, m->count[l]);
    return weights;
}

static void update(const struct group *g, const struct optimizer *o,
                   struct shared_model *m, int l, const float *gradient)
{
    const int64_t count = block_of(m->count[l], g->size, g->rank).count, place = block_place(g, m, l);
    float *sum = allocate(sizeof *sum * (size_t)count);
    reduce_scatter(g, gradient, sum, m->count[l]);
    for (int64_t k = 0; k < count; k++) step(o, &m->weights[place + k], &m->v[place + k], sum[k] / (float)g->size);
    release(sum);
}
/*SKELETON
// functions of your own, to gather a layer and to update a block, must be static
*/

void zero3_step(const struct group *g, const struct optimizer *o,
                struct shared_model *m)
{
/*SOLUTION*/
    float *kept = NULL;
    for (int l = 0; l < m->layers; l++) {
        float *weights = gather(g, m, l);
        forward(m, l, weights);
        if (/*KEEP*/l < m->layers/*|l < m->layers - 1*/) release(weights);
        else kept = weights;
    }
    for (int l = m->layers - 1; l >= 0; l--) {
        float *weights = kept ? kept : gather(g, m, l), *gradient = allocate(sizeof *gradient * (size_t)m->count[l]);
        kept = NULL;
        backward(m, l, weights, gradient);
        update(g, o, m, l, gradient);
        release(gradient);
        release(weights);
    }
/*SKELETON
    // your code: all layers forward, then all layers backward
*/
}
