/* cublas_v2.h -- the one product of cuBLAS that the backend calls, computed by the CPU's BLAS; C and C++.
 *
 * operations.c includes this file instead of NVIDIA's where CUDA_EMULATED is set; cublas.c defines the functions.
 * Errors are cuBLAS's statuses.  device/cuda/parts.h includes this file.
 */
#ifndef ORRERY_EMULATED_CUBLAS_V2_H
#define ORRERY_EMULATED_CUBLAS_V2_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_INVALID_VALUE = 7,
               CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_NOT_SUPPORTED = 15 } cublasStatus_t;
typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_64F = 70 } cublasComputeType_t;
typedef enum { CUBLAS_GEMM_DEFAULT = -1 } cublasGemmAlgo_t;
typedef enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_PEDANTIC_MATH = 2 } cublasMath_t;
typedef struct emulated_cublas *cublasHandle_t;

cublasStatus_t cublasCreate(cublasHandle_t *);
cublasStatus_t cublasDestroy(cublasHandle_t);
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t);

/* C [m,n] = alpha op(A) [m,k] op(B) [k,n] + beta C, stored by columns.  Products of 16-bit numbers are summed in fp32,
 * and each result is rounded once.  A matrix that is not the device's, or that reaches behind the end of its
 * allocation, is an error here; a GPU fails later, or overwrites what lies there. */
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                            const void *alpha, const void *A, cudaDataType, int lda, const void *B, cudaDataType,
                            int ldb, const void *beta, void *C, cudaDataType, int ldc, cublasComputeType_t,
                            cublasGemmAlgo_t);

#ifdef __cplusplus
}
#endif
#endif
