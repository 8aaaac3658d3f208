/* vocabulary.c -- lesson 10: the loss, with a vocabulary on several devices.
 * README.md says what to do. */
#include "vocabulary.h"

void vocabulary_max(const struct group *g, const float *logits, int T,
                    int64_t own, float *max)
{
/*SOLUTION*/
    float *all = allocate(sizeof *all * (size_t)(T * g->size));
    for (int t = 0; t < T; t++) {
        max[t] = -INFINITY;
        for (int64_t k = 0; k < own; k++) max[t] = fmaxf(max[t], logits[t * own + k]);
    }
    all_gather(g, max, all, (int64_t)T * g->size);
    for (int t = 0; t < T; t++)
        for (int d = 0; d < g->size; d++) max[t] = fmaxf(max[t], all[d * T + t]);
    release(all);
/*SKELETON
    // your code: first this device's columns, then those of the others
*/
}

/*SOLUTION*/
/* Which column of the vocabulary this device's column k is. */
static int64_t column(const struct group *g, int64_t V, int64_t k)
{
    return /*LAYOUT*/block_of(V, g->size, g->rank).start + k/*|(V > 0) * g->rank + k * g->size*/;
}
/*SKELETON
// which column of the vocabulary is this device's column k?  A function of your own must be static.
*/

double vocabulary_loss(const struct group *g, const float *logits,
                       const int64_t *labels, int T, int64_t V, int64_t own,
                       double smoothing, float *gradient)
{
/*SOLUTION*/
    float *max = allocate(sizeof *max * (size_t)T), *sums = allocate(sizeof *sums * (size_t)(3 * T));
    float *exps = sums, *chosen = sums + T, *all = sums + 2 * T;
    double loss = 0;
    int rows = 0;
    vocabulary_max(g, logits, T, own, max);
    for (int t = 0; t < T; t++) {
        exps[t] = chosen[t] = all[t] = 0;
        for (int64_t k = 0; k < own; k++) {
            const float x = logits[t * own + k] - max[t];
            exps[t] += expf(x);
            all[t] += x;
            if (column(g, V, k) == labels[t]) chosen[t] = x;
        }
        rows += labels[t] >= 0;
    }
    all_reduce(g, sums, 3 * T);
    for (int t = 0; t < T; t++)
        if (labels[t] >= 0)
            loss += log((double)exps[t]) - (1 - smoothing) * chosen[t] - smoothing * all[t] / (double)V;
    for (int t = 0; t < T; t++)
        for (int64_t k = 0; k < own; k++) {
            const double p = expf(logits[t * own + k] - max[t]) / exps[t], want = column(g, V, k) == labels[t];
            gradient[t * own + k] =
                labels[t] < 0 ? 0 : (float)((p - (1 - smoothing) * want - smoothing / (double)V) / rows);
        }
    release(sums);
    release(max);
    return rows > 0 ? loss / rows : 0;
/*SKELETON
    // your code: what does each device add to the sums that all need?
    return 0;
*/
}
