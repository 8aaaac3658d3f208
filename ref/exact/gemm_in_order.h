/* gemm_in_order.h -- a matrix product whose terms are added one after the other: the bits of an element depend on its
 * own row and column alone, not on the sizes of the product, on threads or on the processor, as those of a BLAS do.
 *
 * ref/ops/attention_rows.c multiplies its tiles by this product in the arithmetics of ref/exact/ (real.h: X32, X32S2).
 * Rounding: the sum of each element in fp32, in ascending order of k, then alpha times the sum, then plus beta C.  With
 * two slices the terms are added in fp64, which holds each of them, and their sum is rounded to fp32.
 */
#ifndef ORRERY_GEMM_IN_ORDER_H
#define ORRERY_GEMM_IN_ORDER_H

#include "ref/ops/real.h"

enum { AS_IS, TRANSPOSED };

/* The loop lays out so much of op(B) at a time, and keeps the sums of so many rows from one part to the next. */
enum { IN_ORDER_COLUMNS = 64, IN_ORDER_DEPTH = 256, IN_ORDER_ROWS = 64 };

#if SLICES == 2
typedef double in_order_sum;
#else
typedef real in_order_sum;
#endif

/* part [k, width] = rows k0.. and columns j0.. of op(B). */
static inline void in_order_lay_out(real *restrict part, int op_b, const real *B, int64_t ldb, int64_t k0, int64_t k,
                                    int64_t j0, int64_t width)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < width; j++)
            part[i * IN_ORDER_COLUMNS + j] = op_b == TRANSPOSED ? B[(j0 + j) * ldb + k0 + i]
                                                                : B[(k0 + i) * ldb + j0 + j];
}

/* sum [m, IN_ORDER_COLUMNS] += rows i0.. and columns k0.. of op(A) times part, one term after the other. */
static inline void in_order_add(in_order_sum *restrict sum, int op_a, const real *A, int64_t lda, int64_t i0, int64_t m,
                                int64_t k0, int64_t depth, const real *part, int64_t width)
{
    for (int64_t i = i0; i < i0 + m; i++, sum += IN_ORDER_COLUMNS)
        for (int64_t t = 0; t < depth; t++) {
            const in_order_sum a = op_a == TRANSPOSED ? A[(k0 + t) * lda + i] : A[i * lda + k0 + t];
            for (int64_t j = 0; j < width; j++) sum[j] += a * part[t * IN_ORDER_COLUMNS + j];
        }
}

/* C [m,n] = alpha op(A) [m,k] op(B) [k,n] + beta C, as in gemm.h; beta is 0 or 1.  A sum of more than IN_ORDER_DEPTH
 * terms goes on from part to part: alpha multiplies the whole sum. */
static inline void FN(gemm)(int op_a, int op_b, int64_t m, int64_t n, int64_t k, double alpha, const real *A,
                            int64_t lda, const real *B, int64_t ldb, double beta, real *C, int64_t ldc)
{
    real part[IN_ORDER_DEPTH * IN_ORDER_COLUMNS];
    for (int64_t j0 = 0; j0 < n; j0 += IN_ORDER_COLUMNS)
        for (int64_t i0 = 0; i0 < m; i0 += IN_ORDER_ROWS) {
            const int64_t width = n - j0 < IN_ORDER_COLUMNS ? n - j0 : IN_ORDER_COLUMNS,
                          rows = m - i0 < IN_ORDER_ROWS ? m - i0 : IN_ORDER_ROWS;
            in_order_sum sum[IN_ORDER_ROWS * IN_ORDER_COLUMNS] = { 0 };
            for (int64_t k0 = 0; k0 < k; k0 += IN_ORDER_DEPTH) {
                const int64_t depth = k - k0 < IN_ORDER_DEPTH ? k - k0 : IN_ORDER_DEPTH;
                in_order_lay_out(part, op_b, B, ldb, k0, depth, j0, width);
                in_order_add(sum, op_a, A, lda, i0, rows, k0, depth, part, width);
            }
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < width; j++) {
                    real *const c = C + (i0 + i) * ldc + j0 + j;
                    *c = (real)alpha * (real)sum[i * IN_ORDER_COLUMNS + j] + (beta != 0 ? *c : 0);
                }
        }
}

#endif
