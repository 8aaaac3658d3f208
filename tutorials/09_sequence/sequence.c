/* sequence.c -- lesson 09: sequence parallelism.  README.md says what to do,
 * sequence.h what each function must do. */
#include "sequence.h"

/*SOLUTION*/
/* The tokens of device r, which may be any number modulo W. */
static struct block tokens(const struct group *g, int64_t T, int r)
{
    return block_of(T, g->size, mod(/*ROWS*/r/*|-1 - r*/, g->size));
}
/*SKELETON
// which tokens has device r?  Functions of your own must be static.
*/

void gather_tokens(const struct group *g, const float *own, int64_t T,
                   int64_t D, float *all)
{
/*SOLUTION*/
    const struct block mine = tokens(g, T, g->rank);
    const size_t row = sizeof *all * (size_t)D;
    memcpy(all + mine.start * D, own, row * (size_t)mine.count);
    for (int i = 1; i < g->size; i++) {
        const int to = mod(g->rank + i, g->size), from = mod(g->rank - i, g->size);
        const struct block in = tokens(g, T, from);
        exchange_both(g, to, own, row * (size_t)mine.count, from, all + in.start * D, row * (size_t)in.count);
    }
/*SKELETON
    // your code: W-1 times exchange_both, each time with another device
*/
}

void reduce_tokens(const struct group *g, const float *all, int64_t T,
                   int64_t D, float *own)
{
/*SOLUTION*/
    const struct block mine = tokens(g, T, g->rank);
    const size_t row = sizeof *all * (size_t)D;
    float *arrived = allocate(row * (size_t)mine.count);
    memcpy(own, all + mine.start * D, row * (size_t)mine.count);
    for (int i = 1; i < g->size; i++) {
        const int far = /*NEXT*/-i/*|i*/, from = mod(g->rank + far, g->size), to = mod(g->rank - far, g->size);
        const struct block out = tokens(g, T, to);
        exchange_both(g, to, all + out.start * D, row * (size_t)out.count, from, arrived, row * (size_t)mine.count);
        add_into(own, arrived, mine.count * D);
    }
    release(arrived);
/*SKELETON
    // your code: whose tokens does a device send, and whose summand arrives?
*/
}

void layer_forward(const struct group *g, const struct layer *l, const float *x,
                   struct kept *kept, float *y)
{
/*SOLUTION*/
    const int64_t n = tokens(g, l->T, g->rank).count, TD = l->T * l->D;
    float *own = allocate(sizeof *own * (size_t)(n * l->D)), *all = allocate(sizeof *all * (size_t)TD);
    norm(x, l->w, n, l->D, own);
    gather_tokens(g, own, l->T, l->D, all);
    kept->hidden = allocate(sizeof *all * (size_t)(l->T * l->own));
    matrix_product(kept->hidden, all, l->A, l->T, l->D, l->own, 0);
    for (int64_t i = 0; i < l->T * l->own; i++)
        if (kept->hidden[i] < 0) kept->hidden[i] = 0;
    kept->normed = /*KEEP*/own/*|all*/;
    release(/*KEEP*/all/*|own*/);
    float *part = allocate(sizeof *part * (size_t)TD);
    matrix_product(part, kept->hidden, l->B, l->T, l->own, l->D, 0);
    reduce_tokens(g, part, l->T, l->D, y);
    release(part);
    for (int64_t i = 0; i < n * l->D; i++) y[i] += x[i];
/*SKELETON
    // your code: where are the tokens shared, and where does a device need all of them?
*/
}

void layer_backward(const struct group *g, const struct layer *l,
                    const float *x, struct kept *kept, const float *dy,
                    float *dx, float *dw, float *dA, float *dB)
{
/*SOLUTION*/
    const int64_t n = tokens(g, l->T, g->rank).count, TD = l->T * l->D, hidden = l->T * l->own;
    float *all = allocate(sizeof *all * (size_t)TD), *dH = allocate(sizeof *dH * (size_t)hidden);
    gather_tokens(g, dy, l->T, l->D, all);
    matrix_product(dB, kept->hidden, all, l->own, l->T, l->D, TRANSPOSE_A);
    matrix_product(dH, all, l->B, l->T, l->D, l->own, TRANSPOSE_B);
    for (int64_t i = 0; i < hidden; i++)
        if (!(kept->hidden[i] > 0)) dH[i] = 0;
    release(kept->hidden);
    /*KEEP*/gather_tokens(g, kept->normed, l->T, l->D, all);/*|release(all);*/
    matrix_product(dA, /*KEEP*/all/*|kept->normed*/, dH, l->D, l->T, l->own, TRANSPOSE_A);
    /*KEEP*/release(kept->normed);/*|all = kept->normed;*/
    matrix_product(all, dH, l->A, l->T, l->own, l->D, TRANSPOSE_B);
    release(dH);
    reduce_tokens(g, all, l->T, l->D, dx);
    release(all);
    norm_backward(x, l->w, dx, n, l->D, dx, dw);
    all_reduce(g, dw, l->D);
    for (int64_t i = 0; i < n * l->D; i++) dx[i] += dy[i];
/*SKELETON
    // your code: what gathered forward is reduced backward, and the other way round
*/
}
