/* tensor.h -- lesson 08: what tensor.c defines.  README.md explains it.
 *
 * All devices call a function together.  A matrix is stored row after row.
 * Where n columns, rows or heads are shared by W devices, {LAYOUT: device r
 * has block_of(n, W, r) of them|they are dealt like cards: device r has
 * numbers r, r + W, r + 2W, ..}.  n need not be a multiple of W; with n < W
 * some devices have none.  The judge calls these functions through calls.c
 * (`orrery learn`).
 */
#ifndef TENSOR_H
#define TENSOR_H

#include "course.h"

/* ---- cutting a matrix --------------------------------------------------- */

/** part becomes this device's columns of the whole matrix: as many rows,
 *  shorter ones. */
void cut_columns(const struct group *, const float *whole, int64_t rows,
                 int64_t columns, float *part);

/** part becomes this device's rows of the whole matrix. */
void cut_rows(const struct group *, const float *whole, int64_t rows,
              int64_t columns, float *part);

/** The matrix of attention that makes queries, keys and values at once has 3 *
 *  heads * width columns: the queries of head 0, of head 1, .., then the keys
 *  of all heads, then the values of all heads.  Heads are shared, and a device
 *  needs all three of a head.  part has this device's queries, its keys, its
 *  values: 3 * own heads * width columns. */
void cut_heads(const struct group *, const float *whole, int64_t rows,
               int64_t heads, int64_t width, float *part);

/* ---- a pair of matrices ------------------------------------------------- */

/* Y = relu(X A + a) B + b for T tokens.  X and Y have D numbers a token, on
 * every device the same ones. */
struct mlp {
    int64_t T, D;
    /* hidden numbers of a token that this device has, 0 or more */
    int64_t own;
    /* its columns of A, D rows; its numbers of a */
    const float *A, *a;
    /* its rows of B, D columns; all of b, D numbers */
    const float *B, *b;
};

/** hidden, T rows of `own` numbers, becomes relu(X A + a): the products, then
 *  a is added, then what is negative becomes 0.  Y, the same bits on all
 *  devices: the devices' products are added by one all_reduce, and b is
 *  {BIAS: added to the sum|added to its products by the last device, before
 *  the sum}.  Allocates nothing. */
void mlp_forward(const struct group *, const struct mlp *, const float *X,
                 float *hidden, float *Y);

/* Of this device's parts, as they lie in struct mlp. */
struct mlp_gradients { float *A, *a, *B, *b; };

/** From dY, the same on all devices: dX, the same bits on all devices, and the
 *  gradients of this device's parts of the weights.  The gradient of a bias is
 *  the sum over tokens, from the first to the last.  The slope of relu at 0 is
 *  0.  One all_reduce; allocates at most T * own numbers. */
void mlp_backward(const struct group *, const struct mlp *, const float *X,
                  const float *hidden, const float *dY, float *dX,
                  const struct mlp_gradients *);

#endif
