/* gemm.h -- the matrix product of the BLAS for row-major matrices with int64_t sizes.  attention_rows.c,
 * attention_scores.c, linear.c and ref/optim/galore_step.c call these functions.  No function returns an error
 * code. */
#ifndef ORRERY_GEMM_H
#define ORRERY_GEMM_H

#include "ref/ops/real.h"

#ifdef SUMS_EXACTLY
#include "ref/exact/gemm_in_order.h"
#else
#include <cblas.h>
#include <limits.h>
#undef I                        /* OpenBLAS brings <complex.h>; here I is a width */

enum { AS_IS = CblasNoTrans, TRANSPOSED = CblasTrans };

/* C [m,n] = alpha op(A) [m,k] op(B) [k,n] + beta C.  lda, ldb, ldc: distances of the stored rows, in elements.  With
 * beta = 0 C is not read.  m, n and k may be 0. */
static inline void FN(gemm)(int op_a, int op_b, int64_t m, int64_t n, int64_t k, double alpha, const real *A,
                            int64_t lda, const real *B, int64_t ldb, double beta, real *C, int64_t ldc)
{
    assert(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX && lda <= INT_MAX && ldb <= INT_MAX && ldc <= INT_MAX);
    if (m == 0 || n == 0) return;
    BLAS(gemm)(CblasRowMajor, op_a, op_b, (int)m, (int)n, (int)k, (real)alpha, A, lda > 0 ? (int)lda : 1,
               B, ldb > 0 ? (int)ldb : 1, (real)beta, C, (int)ldc);
}

#endif

#endif
