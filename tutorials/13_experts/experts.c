/* experts.c -- lesson 13: experts on several devices.  README.md says what to
 * do, experts.h what functions must do. */
#include "experts.h"

void route(const float *logits, int64_t T, int E, int k, int64_t *choice,
           float *weight)
{
/*SOLUTION*/
    for (int64_t t = 0; t < T; t++, logits += E, choice += k, weight += k) {
        float sum = 0;
        for (int i = 0; i < k; i++) {
            int best = -1;
            for (int e = 0; e < E; e++) {
                int taken = 0;
                for (int c = 0; c < i; c++) taken |= choice[c] == e;
                if (!taken && (best < 0 || logits[e] /*TIE*/>/*|>=*/ logits[best])) best = e;
            }
            choice[i] = best;
            weight[i] = expf(logits[best] - logits[choice[0]]);
            /*WEIGHTS*/sum += weight[i];/*|(void)sum;*/
        }
        /*WEIGHTS*/(void)E;/*|for (int e = 0; e < E; e++) sum += expf(logits[e] - logits[choice[0]]);*/
        for (int i = 0; i < k; i++) weight[i] /= sum;
    }
/*SKELETON
    // your code: k times the largest logit that is not chosen yet
*/
}

void plan_trip(const struct group *g, int E, const int64_t *choice, int64_t n,
               int64_t capacity, struct trip *t)
{
/*SOLUTION*/
    const int64_t own = block_of(E, g->size, g->rank).count;
    float *counts = allocate(sizeof *counts * (size_t)(E + own * g->size)), *come = counts + E;
    int64_t give[8], take[8], start = 0;
    memset(t->send, 0, sizeof *t->send * (size_t)E);
    for (int64_t j = 0; j < n; j++) {
        const int64_t i = /*DROP*/j/*|n - 1 - j*/, e = choice[i];
        t->row[i] = capacity > 0 && t->send[e] == capacity ? -1 : t->send[e]++;
    }
    for (int e = 0; e < E; start += t->send[e], e++) {
        counts[e] = (float)t->send[e];
        for (int64_t i = 0; i < n; i++)
            if (choice[i] == e && t->row[i] >= 0) t->row[i] += start;
    }
    for (int d = 0; d < g->size; d++) give[d] = block_of(E, g->size, d).count, take[d] = own;
    all_to_all(g, counts, give, come, take);
    for (int64_t i = 0; i < own * g->size; i++) t->come[i] = (int64_t)come[i];
    release(counts);
/*SKELETON
    // your code: count, drop, find places, and tell the others
*/
}

/*SOLUTION*/
struct numbers { int64_t give[8], take[8], leave, come; };

/* How many numbers go to each device, and come from it. */
static struct numbers numbers_of(const struct group *g, const struct experts *m,
                                 const struct trip *t)
{
    struct numbers n = { .leave = 0 };
    const int64_t own = block_of(m->E, g->size, g->rank).count;
    for (int d = 0; d < g->size; d++) {
        const struct block theirs = block_of(m->E, g->size, d);
        for (int64_t e = 0; e < theirs.count; e++) n.give[d] += t->send[theirs.start + e] * m->D;
        for (int64_t e = 0; e < own; e++) n.take[d] += t->come[d * own + e] * m->D;
        n.leave += n.give[d], n.come += n.take[d];
    }
    return n;
}
/*SKELETON
// functions of your own must be static: how many numbers go to device d, and come from it, is needed four times
*/

void experts_forward(const struct group *g, const struct experts *m,
                     const struct trip *t, const float *x, const float *weight,
                     struct kept *kept, float *y)
{
/*SOLUTION*/
    const struct numbers n = numbers_of(g, m, t);
    const int64_t own = block_of(m->E, g->size, g->rank).count, D = m->D;
    float *rows = allocate(sizeof *rows * (size_t)n.leave), *came = allocate(sizeof *came * (size_t)n.come);
    for (int64_t i = 0; i < m->T * m->k; i++)
        if (t->row[i] >= 0) memcpy(rows + t->row[i] * D, x + i / m->k * D, sizeof *x * (size_t)D);
    all_to_all(g, rows, n.give, came, n.take);
    float *made = allocate(sizeof *made * (size_t)n.come), *in = came, *out = made;
    for (int64_t i = 0; i < own * g->size; in += t->come[i] * D, out += t->come[i] * D, i++)
        matrix_product(out, in, m->M + i % own * D * D, t->come[i], D, D, 0);
    all_to_all(g, made, n.take, rows, n.give);
    release(made);
    memset(y, 0, sizeof *y * (size_t)(m->T * D));
    for (int64_t i = 0; i < m->T * m->k; i++)
        for (int64_t a = 0; a < D && t->row[i] >= 0; a++) y[i / m->k * D + a] += weight[i] * rows[t->row[i] * D + a];
    kept->came = came, kept->results = rows;
/*SKELETON
    // your code: rows there, products, results back, sums with weights
*/
}

void experts_backward(const struct group *g, const struct experts *m,
                      const struct trip *t, const float *weight,
                      struct kept *kept, const float *dy, float *dx,
                      float *dweight, float *dM)
{
/*SOLUTION*/
    const struct numbers n = numbers_of(g, m, t);
    const int64_t own = block_of(m->E, g->size, g->rank).count, D = m->D;
    float *rows = kept->results, *in = kept->came, *came = allocate(sizeof *came * (size_t)n.come), *out = came;
    for (int64_t i = 0; i < m->T * m->k; i++) {
        dweight[i] = 0;
        for (int64_t a = 0; a < D && t->row[i] >= 0; a++) {
            float *number = &rows[t->row[i] * D + a];
            dweight[i] += dy[i / m->k * D + a] * *number;
            *number = weight[i] * dy[i / m->k * D + a];
        }
    }
    all_to_all(g, rows, n.give, came, n.take);
    memset(dM, 0, sizeof *dM * (size_t)(own * D * D));
    for (int64_t i = 0; i < own * g->size; in += t->come[i] * D, out += t->come[i] * D, i++) {
        matrix_product(dM + i % own * D * D, in, out, D, t->come[i], D, TRANSPOSE_A | ADD);
        matrix_product(in, out, m->M + i % own * D * D, t->come[i], D, D, TRANSPOSE_B);
    }
    all_to_all(g, kept->came, n.take, rows, n.give);
    memset(dx, 0, sizeof *dx * (size_t)(m->T * D));
    for (int64_t i = 0; i < m->T * m->k; i++)
        for (int64_t a = 0; a < D && t->row[i] >= 0; a++) dx[i / m->k * D + a] += rows[t->row[i] * D + a];
    release(came), release(kept->came), release(rows);
/*SKELETON
    // your code: the same trip with gradients; which places are free again?
*/
}
