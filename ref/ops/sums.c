/* sums: the two operations of gradient clipping.
 *
 * Source    R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural networks",
 *           arXiv:1211.5063
 * Shapes    X, Y any
 * Forward   sum_of_squares  *squares = sum of x^2 over all elements;   scale  Y = a Y
 * Rounding  sum_of_squares in double: blocks of BLOCK elements, each in LANES interleaved partial sums, then the blocks
 *           in order.  Squares of fp32 numbers are exact in double.  scale rounds a to the format, then each product
 *           once.
 * Called    ref/ops/ops.def lists the operations.  Files of ref/model/ call them for one device; devices call each as
 *           dev_NAME (device/compute.h).  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/table.h"
#include "ref/ops/reduce.h"

enum { BLOCK = 4096, BLOCKS_AT_ONCE = 256 };

static double FN(block_sum_of_squares)(const real *restrict x, int64_t n)
{
    double lane[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i < n; i++, l++) lane[l] += (double)x[i] * (double)x[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

void FN(sum_of_squares)(double *squares, struct tensor X)
{
    const int64_t count = tensor_count(X), blocks = (count + BLOCK - 1) / BLOCK;
    double total = 0, sum[BLOCKS_AT_ONCE];

    for (int64_t b0 = 0; b0 < blocks; b0 += BLOCKS_AT_ONCE) {
        const int64_t batch = blocks - b0 < BLOCKS_AT_ONCE ? blocks - b0 : BLOCKS_AT_ONCE;
        #pragma omp parallel for schedule(static) if (batch * BLOCK > PARALLEL_FROM)
        for (int64_t b = 0; b < batch; b++) {
            const int64_t start = (b0 + b) * BLOCK, left = count - start;
            sum[b] = FN(block_sum_of_squares)(CONST_DATA(X) + start, left < BLOCK ? left : BLOCK);
        }
        for (int64_t b = 0; b < batch; b++) total += sum[b];
    }
    *squares = total;
}

/* simd: Y may be X; the pragma tells the compiler that this is safe. */
void FN(scale)(struct tensor Y, struct tensor X, double a)
{
    const int64_t count = tensor_count(X);
    const real *x = CONST_DATA(X), factor = (real)a;
    real *y = DATA(Y);
    assert(tensor_count(Y) == count);

    #pragma omp parallel for simd schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) y[i] = x[i] * factor;
}
