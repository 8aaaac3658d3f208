/* widened.c -- the operations of the 16-bit formats: the fp32 operations on widened operands; results are rounded once.
 *
 * Each function makes fp32 copies of its 16-bit operands, calls the operation of ref/ops/NAME.c compiled for fp32, and
 * rounds each result once, when it is stored.  A tensor that is fp32 already is used in place: statistics always are,
 * gradients of weights may be.  Results may overwrite operands, because those were copied.  All 16-bit formats share
 * these functions; their tables differ only in the format.
 *
 * ops.def makes all of them but seven.  Those, OPERATION_BY_HAND, must not touch all of a tensor: they stand first.
 *
 * The copies are in host memory for one call: they stand for registers of the emulated device, not for its memory.  If
 * the machine is out of memory, the program is aborted, as in the BLAS.
 */
#include "ref/ops/ops.h"
#include "ref/numeric/convert.h"
#include "ref/ops/few_rows.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define T struct tensor

/* ref/exact/widened.c includes this file for the operations with exact sums, which leave such sums as they are. */
#ifndef NARROW
#define WIDE_OPS ops_f32
#define WIDE_SUMS F32
#define NARROW(format) ops_##format
#define AFTER_ROUNDING(Y, from) ((void)0)
#endif
extern const struct ops WIDE_OPS;

/* The fp32 copies of a call; of those that are results, also where they are stored. */
struct scratch { int used; struct { void *data; T stored; } copy[12]; };

static void *widened_take(struct scratch *scratch, size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (p == NULL) fprintf(stderr, "orrery: no memory for %zu bytes of fp32 copies\n", bytes), abort();
    return scratch->copy[scratch->used++].data = p;
}

static bool needs_copy(T X) { return tensor_present(X) && dtype_size(X.dtype) == 2; }

static T in_fp32(T X, void *data)
{
    X.dtype = F32, X.data = data;
    return X;
}

/* An fp32 copy of what an operation reads; the tensor itself if no copy is needed. */
static T wide(struct scratch *scratch, T X)
{
    if (!needs_copy(X)) return X;
    const T copy = in_fp32(X, widened_take(scratch, tensor_bytes(in_fp32(X, NULL))));
    tensor_convert(copy, X);
    return copy;
}

/* Room in fp32 for what an operation writes, its content undefined; the tensor itself if no copy is needed. */
static T room(struct scratch *scratch, T Y)
{
    if (!needs_copy(Y)) return Y;
    const T copy = in_fp32(Y, widened_take(scratch, tensor_bytes(in_fp32(Y, NULL))));
    scratch->copy[scratch->used - 1].stored = Y;
    return copy;
}

/* Do the same with what is there, for what an operation changes. */
static T changed(struct scratch *scratch, T Y)
{
    const T copy = room(scratch, Y);
    if (needs_copy(Y)) tensor_convert(copy, Y);
    return copy;
}

/* Results, in functions whose scratch is s. */
#define WIDEN_OUT(x, ...) x = room(&s, x);
#ifdef STORES_SUMS
#define WIDEN_SUM_OUT(x, ...)
#else
#define WIDEN_SUM_OUT WIDEN_OUT
#endif

/* A statistic, which an operation writes in place. */
static T fp32_already(T X)
{
    assert(!needs_copy(X));
    return X;
}

/* Round results to where they are stored, and free the copies. */
static void widened_finish(struct scratch *scratch)
{
    for (int k = 0; k < scratch->used; k++) {
        const T Y = scratch->copy[k].stored;
        if (tensor_present(Y)) tensor_convert(Y, in_fp32(Y, scratch->copy[k].data));
        if (tensor_present(Y)) AFTER_ROUNDING(Y, scratch->copy[k].data);
        free(scratch->copy[k].data);
    }
}

/* ---- embedding: only the rows of the table that are used are widened --------------------------------------------- */

static void embedding_forward(T Y, T ids, T W, int64_t first, bool accumulate)
{
    struct scratch s = { 0 };
    const int64_t N = tensor_count(ids), D = tensor_cols(W), rows = tensor_rows(W);
    const T here = tensor_1d(widened_take(&s, (size_t)N * 4), I32, N),
            looked_up = tensor_2d(widened_take(&s, (size_t)(N * D) * 4), F32, N, D);
    for (int64_t n = 0; n < N; n++) {
        const int64_t row = ((const int32_t *)ids.data)[n] - first;
        const bool found = row >= 0 && row < rows;
        ((int32_t *)here.data)[n] = found ? (int32_t)n : -1;
        if (found)
            convert_numbers((float *)looked_up.data + n * D, F32,
                    (const char *)W.data + (size_t)(row * D) * dtype_size(W.dtype), W.dtype, D);
    }
    WIDE_OPS.embedding_forward(accumulate ? changed(&s, Y) : room(&s, Y), here, looked_up, 0, accumulate);
    widened_finish(&s);
}

/* ---- linear: a large matrix is not copied for few rows ----------------------------------------------------------- */

/* The matrix that rows are multiplied with: the tensor itself where few_rows.h widens its rows as it reads them. */
static T widened_factor(struct scratch *scratch, T X, T W)
{
    const bool in_place = WIDE_SUMS == F32 && FN(few_rows_suit)(tensor_rows(X), tensor_rows(W), tensor_cols(W));
    return in_place ? W : wide(scratch, W);
}

static void linear_forward(T Y, T X, T W, T b)
{
    struct scratch s = { 0 };
    WIDEN_SUM_OUT(Y)
    WIDE_OPS.linear_forward(Y, wide(&s, X), widened_factor(&s, X, W), wide(&s, b));
    widened_finish(&s);
}

static void linear_forward_add(T Y, T X, T W)
{
    struct scratch s = { 0 };
    WIDE_OPS.linear_forward_add(changed(&s, Y), wide(&s, X), widened_factor(&s, X, W));
    widened_finish(&s);
}

static void linear_forward_part(T Y, T X, T x_top, T W, T w_top, T b)
{
    struct scratch s = { 0 };
    WIDEN_SUM_OUT(Y)
    WIDE_OPS.linear_forward_part(Y, wide(&s, X), wide(&s, x_top), widened_factor(&s, X, W), wide(&s, w_top),
                                 wide(&s, b));
    widened_finish(&s);
}

/* ---- linear: some columns of a matrix ---------------------------------------------------------------------------- */

/* Copy some columns of a matrix to a matrix in fp32; and back, rounded. */
static T wide_columns(struct scratch *scratch, T X, int64_t first, int64_t width, bool filled)
{
    const T part = tensor_2d(widened_take(scratch, (size_t)(tensor_rows(X) * width) * sizeof(float)), F32,
                             tensor_rows(X), width);
    for (int64_t n = 0; n < tensor_rows(X) && filled; n++)
        convert_numbers((float *)part.data + n * width, F32, (char *)X.data + (size_t)(n * tensor_cols(X) + first) * 2,
                        X.dtype, width);
    return part;
}

static void store_columns(T Y, int64_t first, T from)
{
    const int64_t width = tensor_cols(from);
    for (int64_t n = 0; n < tensor_rows(Y); n++)
        convert_numbers((char *)Y.data + (size_t)(n * tensor_cols(Y) + first) * 2, Y.dtype,
                        (float *)from.data + n * width, F32, width);
}

static void linear_forward_columns(T Y, int64_t first, T X, T W, T b)
{
    struct scratch s = { 0 };
    const T y = wide_columns(&s, Y, first, tensor_rows(W), false);
    WIDE_OPS.linear_forward(y, wide(&s, X), widened_factor(&s, X, W), wide(&s, b));
    store_columns(Y, first, y), widened_finish(&s);
}

static void linear_backward_input_columns(T dX, T dY, int64_t first, T W, bool accumulate)
{
    struct scratch s = { 0 };
    const T dy = wide_columns(&s, dY, first, tensor_rows(W), true);
    WIDE_OPS.linear_backward_input_columns(accumulate ? changed(&s, dX) : room(&s, dX), dy, 0, wide(&s, W), accumulate);
    widened_finish(&s);
}

static void linear_backward_weight_columns(T dW, T dY, int64_t first, T X)
{
    struct scratch s = { 0 };
    const T dy = wide_columns(&s, dY, first, tensor_rows(dW), true);
    WIDE_OPS.linear_backward_weight_columns(changed(&s, dW), dy, 0, wide(&s, X));
    widened_finish(&s);
}

/* ---- all others -------------------------------------------------------------------------------------------------- */

#define WIDEN(item) WIDEN_##item
#define WIDEN_INOUT(x, ...) x = changed(&s, x);
#define WIDEN_IN(x, ...) x = wide(&s, x);
#define WIDEN_STAT_OUT(x, ...) x = fp32_already(x);
#define WIDEN_STAT_INOUT WIDEN_STAT_OUT
#define WIDEN_STAT_IN WIDEN_IN
#define WIDEN_INT_OUT(x, ...)
#define WIDEN_INT_INOUT(x, ...)
#define WIDEN_INT_IN(x, ...)
#define WIDEN_ATTENTION(a)
#define WIDEN_WITH_SINKS(a) a.sinks = wide(&s, a.sinks);
#define WIDEN_ARG(type, x, value)

#define OPERATION(name, need, operands, cost)                                                                          \
    static void name(LIST_OF(PARAMETER, operands))                                                                     \
    {                                                                                                                  \
        struct scratch s = { 0 };                                                                                      \
        EACH_OF(WIDEN, operands)                                                                                       \
        WIDE_OPS.name(LIST_OF(ARGUMENT, operands));                                                                    \
        widened_finish(&s);                                                                                            \
    }
#define OPERATION_BY_HAND(name, need, operands, cost)
#include "ref/ops/ops.def"

/* ---- the tables -------------------------------------------------------------------------------------------------- */

#define OPERATION(name, need, operands, cost) .name = name,
const struct ops NARROW(bf16) = {
    .dtype = BF16, .sums = WIDE_SUMS,
#include "ref/ops/ops.def"
};

#define OPERATION(name, need, operands, cost) .name = name,
const struct ops NARROW(f16) = {
    .dtype = F16, .sums = WIDE_SUMS,
#include "ref/ops/ops.def"
};
