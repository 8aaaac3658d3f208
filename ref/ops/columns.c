/* columns: blocks of columns from one tensor to another.
 *
 * Shapes    Y [N,any], X [N,any]; block b of `times` begins at column y + b y_step of Y and x + b x_step of X
 * Forward   Y[n, block b] = X[n, block b];  with add: Y[n, block b] += X[n, block b], b = 0, 1, ...
 * Backward  the same from dY to dX: where the forward pass copies one block to several places, its step is 0 and the
 *           gradients are added
 * Rounding  none; with add each addition; with the sums of ref/exact/ once for all blocks at one place
 * Called    ref/ops/ops.def lists the operation.  ref/model/backward.c, ref/model/forward.c and ref/model/latent.c
 *           call it for one device; devices call it as dev_columns_move (device/compute.h).  No function returns an
 *           error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

#ifdef SUMS_EXACTLY
#include "ref/numeric/fixed_sum.h"

/* Column i of every block is added to Y without rounding: Y may be EXACT, or is rounded once for all blocks at a
 * place. */
static void add_blocks(struct tensor Y, int64_t row, const real *x, struct column_blocks at)
{
    const int64_t places = at.y_step == 0 ? 1 : at.times, each = at.y_step == 0 ? at.times : 1;
    for (int64_t b = 0; b < places; b++)
        for (int64_t i = 0; i < at.count; i++) {
            const int64_t y = row + at.y + b * at.y_step + i;
            fixed_sum sum = Y.dtype == EXACT ? fixed_at(Y.data, y) : fixed_of((double)DATA(Y)[y]);
            for (int64_t k = b; k < b + each; k++) sum = fixed_add(sum, fixed_of((double)x[at.x + k * at.x_step + i]));
            if (Y.dtype == EXACT) fixed_put(Y.data, y, sum);
            else DATA(Y)[y] = (real)fixed_to_odd(sum);
        }
}
#endif

void FN(columns_move)(struct tensor Y, struct tensor X, struct column_blocks at, bool add)
{
    const int64_t N = tensor_rows(X), from = tensor_cols(X), to = tensor_cols(Y);
    assert(tensor_rows(Y) == N && at.times >= 0);
    assert(at.times == 0 || (at.y + (at.times - 1) * at.y_step + at.count <= to &&
                             at.x + (at.times - 1) * at.x_step + at.count <= from));

#ifdef SUMS_EXACTLY
    for (int64_t n = 0; n < N && add; n++) add_blocks(Y, n * to, CONST_DATA(X) + n * from, at);
    if (add) return;
#endif

    #pragma omp parallel for schedule(static) if (N * at.times * at.count > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++)
        for (int64_t b = 0; b < at.times; b++) {
            const real *x = CONST_DATA(X) + n * from + at.x + b * at.x_step;
            real *y = DATA(Y) + n * to + at.y + b * at.y_step;
            for (int64_t i = 0; i < at.count; i++) y[i] = add ? y[i] + x[i] : x[i];
        }
}
