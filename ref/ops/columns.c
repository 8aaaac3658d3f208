/* columns: blocks of columns from one tensor to another.
 *
 * Shapes    Y [N,any], X [N,any]; block b of `times` begins at column y + b y_step of Y and x + b x_step of X
 * Forward   Y[n, block b] = X[n, block b];  with add: Y[n, block b] += X[n, block b], b = 0, 1, ...
 * Backward  the same from dY to dX: where the forward pass copies one block to several places, its step is 0 and the
 *           gradients are added
 * Rounding  none; with add each addition
 * Called    ref/ops/ops.def lists the operation.  ref/model/backward.c, ref/model/forward.c and ref/model/latent.c
 *           call it for one device; devices call it as dev_columns_move (device/compute.h).  No function returns an
 *           error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

void FN(columns_move)(struct tensor Y, struct tensor X, struct column_blocks at, bool add)
{
    const int64_t N = tensor_rows(X), from = tensor_cols(X), to = tensor_cols(Y);
    assert(tensor_rows(Y) == N && at.times >= 0);
    assert(at.times == 0 || (at.y + (at.times - 1) * at.y_step + at.count <= to &&
                             at.x + (at.times - 1) * at.x_step + at.count <= from));

    #pragma omp parallel for schedule(static) if (N * at.times * at.count > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++)
        for (int64_t b = 0; b < at.times; b++) {
            const real *x = CONST_DATA(X) + n * from + at.x + b * at.x_step;
            real *y = DATA(Y) + n * to + at.y + b * at.y_step;
            for (int64_t i = 0; i < at.count; i++) y[i] = add ? y[i] + x[i] : x[i];
        }
}
