/* linear: multiplies every row by a matrix and adds a bias.
 *
 * Source    the affine layer; W is stored [out,in] as in Hugging Face's nn.Linear (GPT-2's own files store it
 *           transposed)
 * Shapes    X, dX [N,I];  W, dW [O,I];  b, db [O] or left out;  Y, dY [N,O]
 * Forward   Y   = X W^T + b
 *           Y  += X W^T  (forward_add)
 * Backward  dX  = dY W
 *           dW += dY^T X,  db += sum_rows(dY)
 * Tiles     (_columns)  W, dW and b are the rows of a matrix from row `first` on; only the columns of Y and dY from
 *           `first` on are used.  Forward does not change the others; accumulate: backward for the input adds to dX
 * Rounding  the BLAS chooses the order inside a product: it may depend on shape and threads, so results agree within
 *           gamma_n * sum |a||b| (n = I + 1 forward, O for dX, N + 1 for dW), not bit for bit.  db sums rows in order.
 *           Few rows and a large W: few_rows.h multiplies them forward, in a fixed order.  Then W may be of a 16-bit
 *           format, and is read as the same numbers.
 * Called    ref/ops/ops.def lists the operations.  Files of ref/model/ call them for one device; devices call each as
 *           dev_NAME (device/compute.h).  No function returns an error code.
 * Speed     Y is set to b and the product is added to it: otherwise the BLAS would need the same pass to write zeros.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/few_rows.h"
#include "ref/ops/gemm.h"
#include "ref/ops/reduce.h"
#include <string.h>

static void FN(fill_rows)(struct tensor Y, int64_t first, struct tensor b)
{
    const int64_t N = tensor_rows(Y), O = tensor_cols(Y), width = tensor_count(b);

    #pragma omp parallel for schedule(static) if (N * width > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) memcpy(DATA(Y) + n * O + first, b.data, (size_t)width * sizeof(real));
}

/* Y [N,O] = X [N,I] W [O,I]^T, or Y += that; ldy is the distance of Y's rows. */
static void FN(rows_times)(struct tensor X, struct tensor W, bool add, real *Y, int64_t ldy)
{
    const int64_t N = tensor_rows(X), O = tensor_rows(W), I = tensor_cols(W);
    const struct FN(few_matrix) few = { W.data, W.dtype, O, I };
    if (FN(few_rows_suit)(N, O, I)) FN(few_rows)(&few, N, CONST_DATA(X), add, Y, ldy);
    else FN(gemm)(AS_IS, TRANSPOSED, N, O, I, 1, CONST_DATA(X), I, CONST_DATA(W), I, add, Y, ldy);
}

void FN(linear_forward_columns)(struct tensor Y, int64_t first, struct tensor X, struct tensor W, struct tensor b)
{
    assert(tensor_rows(Y) == tensor_rows(X) && first >= 0 && first + tensor_rows(W) <= tensor_cols(Y) &&
           tensor_cols(W) == tensor_cols(X));
    assert(!tensor_present(b) || tensor_count(b) == tensor_rows(W));

    if (tensor_present(b)) FN(fill_rows)(Y, first, b);
    FN(rows_times)(X, W, tensor_present(b), DATA(Y) + first, tensor_cols(Y));
}

void FN(linear_forward)(struct tensor Y, struct tensor X, struct tensor W, struct tensor b)
{
    assert(tensor_rows(W) == tensor_cols(Y));
    FN(linear_forward_columns)(Y, 0, X, W, b);
}

void FN(linear_forward_add)(struct tensor Y, struct tensor X, struct tensor W)
{
    assert(tensor_rows(Y) == tensor_rows(X) && tensor_rows(W) == tensor_cols(Y) && tensor_cols(W) == tensor_cols(X));

    FN(rows_times)(X, W, true, DATA(Y), tensor_cols(Y));
}

void FN(linear_backward_input_columns)(struct tensor dX, struct tensor dY, int64_t first, struct tensor W,
                                       bool accumulate)
{
    const int64_t N = tensor_rows(dX), I = tensor_cols(dX), O = tensor_cols(dY), width = tensor_rows(W);
    assert(tensor_rows(dY) == N && first >= 0 && first + width <= O && tensor_cols(W) == I);

    FN(gemm)(AS_IS, AS_IS, N, I, width, 1, CONST_DATA(dY) + first, O, CONST_DATA(W), I, accumulate, DATA(dX), I);
}

void FN(linear_backward_input)(struct tensor dX, struct tensor dY, struct tensor W)
{
    assert(tensor_rows(W) == tensor_cols(dY));
    FN(linear_backward_input_columns)(dX, dY, 0, W, false);
}

/* Threads split the columns, so that every column's sum runs over the rows in order. */
void FN(column_sums)(struct tensor db, struct tensor dY)
{
    const int64_t N = tensor_rows(dY), O = tensor_cols(dY);
    assert(tensor_count(db) == O);

    #pragma omp parallel for schedule(static) if (N * O > PARALLEL_FROM)
    for (int64_t o0 = 0; o0 < O; o0 += COLUMN_BLOCK) {
        const int64_t width = O - o0 < COLUMN_BLOCK ? O - o0 : COLUMN_BLOCK;
        real sum[COLUMN_BLOCK] = { 0 };
        for (int64_t n = 0; n < N; n++) {
            const real *restrict dy = CONST_DATA(dY) + n * O + o0;
            for (int64_t o = 0; o < width; o++) sum[o] += dy[o];
        }
        for (int64_t o = 0; o < width; o++) DATA(db)[o0 + o] += sum[o];
    }
}

void FN(linear_backward_weight_columns)(struct tensor dW, struct tensor dY, int64_t first, struct tensor X)
{
    const int64_t N = tensor_rows(X), I = tensor_cols(X), O = tensor_cols(dY), width = tensor_rows(dW);
    assert(tensor_rows(dY) == N && first >= 0 && first + width <= O && tensor_cols(dW) == I);

    FN(gemm)(TRANSPOSED, AS_IS, width, I, N, 1, CONST_DATA(dY) + first, O, CONST_DATA(X), I, 1, DATA(dW), I);
}

void FN(linear_backward_weight)(struct tensor dW, struct tensor db, struct tensor dY, struct tensor X)
{
    assert(tensor_rows(dW) == tensor_cols(dY) && (!tensor_present(db) || tensor_count(db) == tensor_cols(dY)));
    FN(linear_backward_weight_columns)(dW, dY, 0, X);
    if (tensor_present(db)) FN(column_sums)(db, dY);
}

/* ---- parts of products: ordinary arithmetic needs no tops -------------------------------------------------------- */

static real FN(larger)(real top, real x)
{
    const real size = REAL_FN(fabs)(x);
    return size > top || size != size ? size : top;
}

void FN(row_tops)(struct tensor top, struct tensor X)
{
    const int64_t N = tensor_count(top), D = tensor_cols(X);
    for (int64_t n = 0; n < N; n++) {
        DATA(top)[n] = 0;
        for (int64_t d = 0; d < D; d++) DATA(top)[n] = FN(larger)(DATA(top)[n], CONST_DATA(X)[n * D + d]);
    }
}

void FN(column_tops)(struct tensor top, struct tensor X)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    for (int64_t d = 0; d < D; d++) DATA(top)[d] = 0;
    for (int64_t n = 0; n < N; n++)
        for (int64_t d = 0; d < D; d++) DATA(top)[d] = FN(larger)(DATA(top)[d], CONST_DATA(X)[n * D + d]);
}

void FN(linear_forward_part)(struct tensor Y, struct tensor X, struct tensor x_top, struct tensor W,
                             struct tensor w_top, struct tensor b)
{
    (void)x_top, (void)w_top;
    FN(linear_forward)(Y, X, W, b);
}

void FN(linear_backward_input_part)(struct tensor dX, struct tensor dY, struct tensor dy_top, struct tensor W,
                                    struct tensor w_top)
{
    (void)dy_top, (void)w_top;
    FN(linear_backward_input)(dX, dY, W);
}

void FN(linear_backward_weight_part)(struct tensor dW, struct tensor db, struct tensor dY, struct tensor dy_top,
                                     struct tensor X, struct tensor x_top)
{
    (void)dy_top, (void)x_top;
    FN(linear_backward_weight)(dW, db, dY, X);
}
