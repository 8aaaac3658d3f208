/* tensor.c -- lesson 08: tensor parallelism.  README.md says what to do,
 * tensor.h what each function must do. */
#include "tensor.h"

/*SOLUTION*/
static int64_t own_of(const struct group *g, int64_t n)
{
    return /*LAYOUT*/block_of(n, g->size, g->rank).count/*|(n - g->rank + g->size - 1) / g->size*/;
}

/* Which of n columns, rows or heads is this device's number k. */
static int64_t number(const struct group *g, int64_t n, int64_t k)
{
    return /*LAYOUT*/block_of(n, g->size, g->rank).start + k/*|g->rank + k * g->size*/;
}
/*SKELETON
// how many of n columns has this device, and which one is its number k?  Functions of your own must be static.
*/

void cut_columns(const struct group *g, const float *whole, int64_t rows,
                 int64_t columns, float *part)
{
/*SOLUTION*/
    const int64_t own = own_of(g, columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < own; k++) part[i * own + k] = whole[i * columns + number(g, columns, k)];
/*SKELETON
    // your code: every row gets shorter
*/
}

void cut_rows(const struct group *g, const float *whole, int64_t rows,
              int64_t columns, float *part)
{
/*SOLUTION*/
    const size_t bytes = sizeof *part * (size_t)columns;
    for (int64_t k = 0; k < own_of(g, rows); k++)
        memcpy(part + k * columns, whole + number(g, rows, k) * columns, bytes);
/*SKELETON
    // your code
*/
}

void cut_heads(const struct group *g, const float *whole, int64_t rows,
               int64_t heads, int64_t width, float *part)
{
/*SOLUTION*/
    const int64_t own = own_of(g, heads);
    const size_t bytes = sizeof *part * (size_t)width;
    for (int64_t i = 0; i < 3 * rows; i++)                  /* queries, keys and values of each row */
        for (int64_t k = 0; k < own; k++)
            memcpy(part + (i * own + k) * width, whole + (i * heads + number(g, heads, k)) * width, bytes);
/*SKELETON
    // your code: what lies between the queries and the keys of a head in a row?
*/
}

void mlp_forward(const struct group *g, const struct mlp *m, const float *X,
                 float *hidden, float *Y)
{
/*SOLUTION*/
    matrix_product(hidden, X, m->A, m->T, m->D, m->own, 0);
    for (int64_t i = 0; i < m->T * m->own; i++) {
        hidden[i] += m->a[i % m->own];
        if (hidden[i] < 0) hidden[i] = 0;
    }
    matrix_product(Y, hidden, m->B, m->T, m->own, m->D, 0);
    /*BIAS*/all_reduce(g, Y, m->T * m->D);/*|if (g->rank == g->size - 1)*/
    for (int64_t i = 0; i < m->T * m->D; i++) Y[i] += m->b[i % m->D];
    /*BIAS*//*|all_reduce(g, Y, m->T * m->D);*/
/*SKELETON
    // your code: what has a device computed before the all_reduce, and what is still missing?
*/
}

/*SOLUTION*/
/* The sum of all rows. */
static void sum_rows(const float *x, int64_t rows, int64_t columns, float *sum)
{
    for (int64_t k = 0; k < columns; k++) sum[k] = 0;
    for (int64_t i = 0; i < rows * columns; i++) sum[i % columns] += x[i];
}
/*SKELETON
// the sum of all rows of a matrix is needed twice
*/

void mlp_backward(const struct group *g, const struct mlp *m, const float *X,
                  const float *hidden, const float *dY, float *dX,
                  const struct mlp_gradients *d)
{
/*SOLUTION*/
    float *dH = allocate(sizeof *dH * (size_t)(m->T * m->own));
    sum_rows(dY, m->T, m->D, d->b);
    matrix_product(d->B, hidden, dY, m->own, m->T, m->D, TRANSPOSE_A);
    matrix_product(dH, dY, m->B, m->T, m->D, m->own, TRANSPOSE_B);
    for (int64_t i = 0; i < m->T * m->own; i++)
        if (!(hidden[i] > 0)) dH[i] = 0;
    sum_rows(dH, m->T, m->own, d->a);
    matrix_product(d->A, X, dH, m->D, m->T, m->own, TRANSPOSE_A);
    matrix_product(dX, dH, m->A, m->T, m->own, m->D, TRANSPOSE_B);
    all_reduce(g, dX, m->T * m->D);
    release(dH);
/*SKELETON
    // your code: backwards through B, relu, A; which of the gradients is a sum over the devices?
*/
}
