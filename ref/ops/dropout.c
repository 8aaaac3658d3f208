/* dropout: sets random elements to 0 and scales the others so that the mean does not change.
 *
 * Source    N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting",
 *           JMLR 15:1929-1958 (2014), https://jmlr.org/papers/v15/srivastava14a.html; scaled at training time
 * Shapes    X, Y [rows,cols], a piece of the whole tensor that starts at (row0, col0);  Y may be X
 * Forward   Y  = X/(1-p) where uniform(seed, stream, index) >= p, else 0;  index of the element in the whole tensor
 * Backward  dX = the same function of dY: the mask is drawn again, not stored
 * Rounding  elementwise: 1/(1-p) is rounded to the format, the product once more
 * Called    ref/ops/ops.def lists the operation.  ref/model/backward.c and ref/model/forward.c call it for one
 *           device; devices call it as dev_dropout (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"
#include "ref/numeric/philox.h"
#include <string.h>

/* At most COLUMN_BLOCK elements of a row.  simd: y may be x; the pragma tells the compiler that this is safe. */
static void FN(drop)(real *y, const real *x, int64_t n, struct dropout d, uint64_t index)
{
    const real grow = (real)(1 / (1 - d.p));
    float draw[COLUMN_BLOCK];
    random_uniforms(draw, n, d.seed, d.stream, index);
    #pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = draw[i] >= d.p ? x[i] * grow : 0;
}

void FN(dropout)(struct tensor Y, struct tensor X, struct dropout d)
{
    const int64_t rows = tensor_rows(X), cols = tensor_cols(X);
    assert(tensor_count(Y) == rows * cols && d.p >= 0 && d.p < 1);

    if (d.p == 0) {
        if (Y.data != X.data && rows * cols > 0) memcpy(Y.data, X.data, tensor_bytes(X));
        return;
    }
    assert(d.col0 + cols <= d.cols);
    #pragma omp parallel for schedule(static) if (rows * cols > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        const uint64_t first = (uint64_t)((d.row0 + r) * d.cols + d.col0);
        for (int64_t c0 = 0; c0 < cols; c0 += COLUMN_BLOCK) {
            const int64_t width = cols - c0 < COLUMN_BLOCK ? cols - c0 : COLUMN_BLOCK;
            FN(drop)(DATA(Y) + r * cols + c0, CONST_DATA(X) + r * cols + c0, width, d, first + (uint64_t)c0);
        }
    }
}
