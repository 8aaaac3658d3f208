/* cublas.c -- cuBLAS's product by the CPU's BLAS: matrices by columns are transposed matrices by rows.
 *
 * On a GPU the order of sums depends on where the matrices lie: cuBLAS has kernels for addresses that are multiples of
 * 16 bytes, and others.  Here sums of others are made in two halves, so that who relies on it sees other bits.
 * device/cuda/operations.c and gpu.c call these functions, as they call NVIDIA's.
 */
#include <cublas_v2.h>
#include "ref/numeric/convert.h"
#include <cblas.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#undef I

void emulated_product_refused(const char *why);
void emulated_product_reads(const char *matrix, const void *X, size_t pitch, size_t width, size_t rows);
void emulated_product_writes(void *C, size_t pitch, size_t width, size_t rows);
int emulated_product_reaches(const char *matrix, const void *data, size_t pitch, size_t width, size_t columns);

struct emulated_cublas { int opened; };

/* The handle only has to be there: cublasGemmEx refuses NULL. */
cublasStatus_t cublasCreate(cublasHandle_t *h)
{
    *h = calloc(1, sizeof **h);
    return *h ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasDestroy(cublasHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t m) { return (void)h, (void)m, CUBLAS_STATUS_SUCCESS; }

static enum dtype format_of(cudaDataType t)
{
    switch (t) {
    case CUDA_R_32F: return F32;
    case CUDA_R_64F: return F64;
    case CUDA_R_16F: return F16;
    case CUDA_R_16BF: return BF16;
    }
    return DTYPE_COUNT;
}

enum { PLACE = 16 };
static bool at_a_place(const void *x) { return (uintptr_t)x % PLACE == 0; }

/* Numbers of a sum that are added at once. */
static int cublas_part_of(int k, const void *A, const void *B, const void *C)
{
    return k < 2 || (at_a_place(A) && at_a_place(B) && at_a_place(C)) ? k : k / 2;
}

/* C = alpha A B + beta C of one format, by rows, adding `part` of the k numbers of a sum at once. */
#define BY_PARTS(name, gemm, T)                                                                                        \
    static void name(int part, int trans_a, int trans_b, int m, int n, int k, T alpha, const T *A, int lda,            \
                     const T *B, int ldb, T beta, T *C, int ldc)                                                       \
    {                                                                                                                  \
        gemm(CblasRowMajor, trans_a, trans_b, m, n, part, alpha, A, lda, B, ldb, beta, C, ldc);                        \
        if (part == k) return;                                                                                         \
        gemm(CblasRowMajor, trans_a, trans_b, m, n, k - part, alpha,                                                   \
             A + (trans_a == CblasNoTrans ? (size_t)part : (size_t)part * (size_t)lda), lda,                           \
             B + (trans_b == CblasNoTrans ? (size_t)part * (size_t)ldb : (size_t)part), ldb, 1, C, ldc);               \
    }
BY_PARTS(product_fp64, cblas_dgemm, double)
BY_PARTS(product_fp32, cblas_sgemm, float)
#undef BY_PARTS

/* A matrix of `rows` stored rows of `width` numbers, in fp32. */
static float *widened(const void *X, enum dtype dtype, int rows, int width, int ld)
{
    float *y = malloc((size_t)rows * (size_t)width * sizeof *y + 1);
    if (y == NULL) fprintf(stderr, "orrery: no memory for a product's operands\n"), abort();
    for (int r = 0; r < rows; r++)
        convert_numbers(y + (size_t)r * (size_t)width, F32,
                        (const char *)X + (size_t)r * (size_t)ld * dtype_size(dtype), dtype, width);
    return y;
}

/* Operands are widened to fp32, multiplied, and rounded once to the format of C. */
static void product_of_16_bits(cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, float alpha,
                               const void *A, enum dtype ta, int lda, const void *B, enum dtype tb, int ldb, float beta,
                               void *C, enum dtype tc, int ldc)
{
    /* Stored columns are rows of what the CPU's BLAS sees, so sizes change places. */
    const int a_rows = op_a == CUBLAS_OP_N ? k : m, a_width = op_a == CUBLAS_OP_N ? m : k;
    const int b_rows = op_b == CUBLAS_OP_N ? n : k, b_width = op_b == CUBLAS_OP_N ? k : n;
    float *a = widened(A, ta, a_rows, a_width, lda), *b = widened(B, tb, b_rows, b_width, ldb);
    float *c = widened(C, tc, beta != 0 ? n : 0, m, ldc);
    /* With beta 0 nothing of C is read, which may never have been written. */
    if (beta == 0) free(c), c = malloc((size_t)m * (size_t)n * sizeof *c + 1);
    product_fp32(cublas_part_of(k, A, B, C), op_b == CUBLAS_OP_N ? CblasNoTrans : CblasTrans,
                 op_a == CUBLAS_OP_N ? CblasNoTrans : CblasTrans, n, m, k, alpha, b, b_width > 0 ? b_width : 1, a,
                 a_width > 0 ? a_width : 1, beta, c, m);
    for (int r = 0; r < n; r++)
        convert_numbers((char *)C + (size_t)r * (size_t)ldc * dtype_size(tc), tc, c + (size_t)r * (size_t)m, F32, m);
    free(a), free(b), free(c);
}

/* A matrix of stored columns, `ld` numbers apart, each of `rows` numbers. */
struct stored { const char *name; const void *X; enum dtype t; int ld, rows, columns; };

/* Op decides which side is stored: a transposed matrix has its rows as columns. */
static struct stored stored(const char *name, const void *X, enum dtype dtype, int ld, bool transposed, int rows,
                            int columns)
{
    return (struct stored){ name, X, dtype, ld, transposed ? columns : rows, transposed ? rows : columns };
}

/* A GPU's library returns an error, which is easily not looked at. */
static bool has_shape(const struct stored *stored)
{
    static _Thread_local char text[120];
    if (stored->rows >= 0 && stored->columns >= 0 && stored->ld >= stored->rows) return true;
    snprintf(text, sizeof text, "cublasGemmEx with a matrix %s of columns of %d numbers whose leading dimension is %d",
             stored->name, stored->rows, stored->ld);
    emulated_product_refused(text);
    return false;
}

/* Whether it lies where a kernel may use it. */
static bool lies_well(const struct stored *stored)
{
    const size_t size = dtype_size(stored->t);
    return emulated_product_reaches(stored->name, stored->X, (size_t)stored->ld * size, (size_t)stored->rows * size,
                                    (size_t)stored->columns);
}

/* A judge hears that the product reads this matrix, so that it can find reads before writes. */
static void is_read(const struct stored *stored)
{
    const size_t size = dtype_size(stored->t);
    emulated_product_reads(stored->name, stored->X, (size_t)stored->ld * size, (size_t)stored->rows * size,
                           (size_t)stored->columns);
}

static bool is_zero(const void *x, enum dtype dtype)
{
    return dtype == F64 ? *(const double *)x == 0 : *(const float *)x == 0;
}

/* C [m, n] = alpha op(A) [m, k] op(B) [k, n] + beta C, all by columns.  Errors of the call are told to a judge. */
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void *alpha, const void *A, cudaDataType A_type, int lda, const void *B,
                            cudaDataType B_type, int ldb, const void *beta, void *C, cudaDataType C_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    emulated_calls.products++;
    const enum dtype ta = format_of(A_type), tb = format_of(B_type), tc = format_of(C_type);
    const struct stored a = stored("A", A, ta, lda, op_a != CUBLAS_OP_N, m, k);
    const struct stored b = stored("B", B, tb, ldb, op_b != CUBLAS_OP_N, k, n);
    const struct stored c = stored("C", C, tc, ldc, false, m, n);
    (void)algo;
    if (h == NULL) return emulated_product_refused("cublasGemmEx without a handle"), CUBLAS_STATUS_NOT_INITIALIZED;
    if (!has_shape(&a) || !has_shape(&b) || !has_shape(&c)) return CUBLAS_STATUS_INVALID_VALUE;
    /* The backend uses only these combinations; cuBLAS itself has more. */
    if ((ta == F64) != (compute == CUBLAS_COMPUTE_64F) || ta != tb || (tc != ta && tc != F32)) {
        emulated_product_refused("cublasGemmEx with formats that do not go together");
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    if (!lies_well(&c) || !lies_well(&a) || !lies_well(&b)) return CUBLAS_STATUS_EXECUTION_FAILED;
    /* Factors of 0 mean that a matrix is not read, whatever it contains. */
    if (!is_zero(alpha, ta)) is_read(&a), is_read(&b);
    if (!is_zero(beta, ta)) is_read(&c);
    emulated_product_writes(C, (size_t)ldc * dtype_size(tc), (size_t)m * dtype_size(tc), (size_t)n);
    const int trans_a = op_a == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
    const int trans_b = op_b == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
    lda = lda > 0 ? lda : 1, ldb = ldb > 0 ? ldb : 1;
    const int part = cublas_part_of(k, A, B, C);
    if (ta == F64)
        product_fp64(part, trans_b, trans_a, n, m, k, *(const double *)alpha, B, ldb, A, lda, *(const double *)beta, C,
                     ldc);
    else if (ta == F32)
        product_fp32(part, trans_b, trans_a, n, m, k, *(const float *)alpha, B, ldb, A, lda, *(const float *)beta, C,
                     ldc);
    else
        product_of_16_bits(op_a, op_b, m, n, k, *(const float *)alpha, A, ta, lda, B, tb, ldb, *(const float *)beta, C,
                           tc, ldc);
    return CUBLAS_STATUS_SUCCESS;
}
