/* cblas.h -- the matrix product for a browser, which has no BLAS, in place of the BLAS's own header.
 *
 * ref/ops/gemm.h calls these functions there.  The backend of a plan computes nothing, so the loops below may be slow.
 * They are right all the same.
 */
#ifndef ORRERY_BROWSER_CBLAS_H
#define ORRERY_BROWSER_CBLAS_H

enum { CblasRowMajor = 101, CblasNoTrans = 111, CblasTrans = 112 };

/* C [m,n] = alpha op(A) op(B) + beta C of rows that lie behind each other. */
#define GEMM(name, real)                                                                                               \
    static inline void name(int order, int op_a, int op_b, int m, int n, int k, real alpha, const real *A, int lda,    \
                            const real *B, int ldb, real beta, real *C, int ldc)                                       \
    {                                                                                                                  \
        (void)order;                                                                                                   \
        for (long i = 0; i < m; i++)                                                                                   \
            for (long j = 0; j < n; j++) {                                                                             \
                real sum = 0;                                                                                          \
                for (long l = 0; l < k; l++)                                                                           \
                    sum += (op_a == CblasNoTrans ? A[i * lda + l] : A[l * lda + i])                                    \
                        * (op_b == CblasNoTrans ? B[l * ldb + j] : B[j * ldb + l]);                                    \
                C[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * C[i * ldc + j]);                                \
            }                                                                                                          \
    }
GEMM(cblas_sgemm, float)
GEMM(cblas_dgemm, double)
#undef GEMM

#endif
