/* Calls of the host with one mistake each, which a GPU's library answers with an error or with wrong numbers; and right ones. */
#include "tests/devices/cuda/judged.cuh"
#include <cublas_v2.h>

/* ---- a product of cuBLAS: C [4,3] = A [4,5] B [5,3], by columns -------------------------------------------------- */

struct call {
    int m, n, k, lda, ldb, ldc, beta;
    bool host_a, filled;
    cublasOperation_t op_a;
};
static const call right_call = { 4, 3, 5, 4, 5, 4, 0, false, true, CUBLAS_OP_N };

static int run_product(const call &c)
{
    enum { M = 4, N = 3, K = 5 };
    ramp a(M * K), b(K * N);
    numbers<float> y(M * N), empty(M * K);
    float got[M * N], want[M * N] = { 0 };
    const float one = 1, beta = (float)c.beta;
    cublasHandle_t h;
    cublasCreate(&h);
    const float *A = c.host_a ? a.host : c.filled ? a.data : empty.data;
    const cublasStatus_t e = cublasGemmEx(h, c.op_a, CUBLAS_OP_N, c.m, c.n, c.k, &one, A, CUDA_R_32F, c.lda, b.data, CUDA_R_32F,
                                          c.ldb, &beta, y.data, CUDA_R_32F, c.ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    cublasDestroy(h);
    for (int col = 0; col < N; col++)
        for (int r = 0; r < M; r++)
            for (int k = 0; k < K; k++) want[col * M + r] += a.host[k * M + r] * b.host[col * K + k];
    if (e == CUBLAS_STATUS_SUCCESS) y.get(got);
    return e != CUBLAS_STATUS_SUCCESS || differ(got, want, M * N);
}

/* A call with one number changed. */
#define PRODUCT(name, change)                                                                                          \
    static int run_##name()                                                                                            \
    {                                                                                                                  \
        call c = right_call;                                                                                           \
        change;                                                                                                        \
        return run_product(c);                                                                                         \
    }
PRODUCT(the_product, (void)c)
PRODUCT(columns_of_c_too_far_apart, c.ldc = 8)
PRODUCT(columns_of_a_too_far_apart, c.lda = 8)
PRODUCT(columns_of_b_too_far_apart, c.ldb = 7)
PRODUCT(columns_of_a_too_near, c.lda = 3)
PRODUCT(columns_of_c_too_near, c.ldc = 3)
PRODUCT(rows_for_columns, c.op_a = CUBLAS_OP_T)
PRODUCT(one_column_too_many, c.n = 4)
PRODUCT(an_operand_of_the_host, c.host_a = true)
PRODUCT(an_operand_that_nobody_wrote, c.filled = false)
PRODUCT(a_sum_with_what_nobody_wrote, c.beta = 1)

/* ---- launches and copies ----------------------------------------------------------------------------------------- */

static __global__ void ones(float *y) { y[threadIdx.x + blockIdx.x * blockDim.x] = 1; }
template <int FAULT> static int run_launch()
{
    numbers<float> y(1);
    const dim3 grid = FAULT == 1 ? dim3(1, 65536) : dim3(1), block = FAULT == 2 ? dim3(1, 1, 65) : FAULT == 3 ? dim3(0) : dim3(1);
    float got;
    LAUNCH(ones, grid, block, 0, y.data);
    if (FAULT == 0) y.get(&got);
    return cudaGetLastError() == cudaSuccess && FAULT != 0;
}

template <int FAULT> static int run_rows()
{
    numbers<float> y(24);
    float host[24] = { 0 };
    y.zero();
    cudaMemcpy2D(y.data, FAULT == 1 ? 2 * sizeof(float) : 6 * sizeof(float), host, 4 * sizeof(float), 4 * sizeof(float), FAULT == 2 ? 5 : 4,
                 cudaMemcpyHostToDevice);
    if (FAULT == 3) cudaFree(y.data + 4);
    return 0;
}

const struct judged host_kernels[] = {
    { "a product", NULL, run_the_product },
    { "a product: columns of C too far apart", "a matrix C of 80 bytes, by its leading dimension, where the allocation has 48",
      run_columns_of_c_too_far_apart },
    { "a product: columns of A too far apart", "a matrix A of 144 bytes, by its leading dimension, where the allocation has 80",
      run_columns_of_a_too_far_apart },
    { "a product: columns of B too far apart", "a matrix B of 76 bytes, by its leading dimension, where the allocation has 60",
      run_columns_of_b_too_far_apart },
    { "a product: columns of A too near", "a matrix A of columns of 4 numbers whose leading dimension is 3", run_columns_of_a_too_near },
    { "a product: columns of C too near", "a matrix C of columns of 4 numbers whose leading dimension is 3", run_columns_of_c_too_near },
    { "a product: rows for columns", "a matrix A of columns of 5 numbers whose leading dimension is 4", run_rows_for_columns },
    { "a product: one column too many", "a matrix C of 64 bytes, by its leading dimension, where the allocation has 48",
      run_one_column_too_many },
    { "a product: an operand of the host", "a matrix A that is not the device's memory", run_an_operand_of_the_host },
    { "a product: an operand that nobody wrote", "cublasGemmEx reads of A what nobody has written", run_an_operand_that_nobody_wrote },
    { "a product: a sum with what nobody wrote", "cublasGemmEx reads of C what nobody has written", run_a_sum_with_what_nobody_wrote },
    { "a launch", NULL, run_launch<0> },
    { "a launch: too many blocks along y", "kernel ones: it is not launched: its grid has more than 65535 blocks along y", run_launch<1> },
    { "a launch: too many threads along z", "kernel ones: it is not launched: its blocks have more than 64 threads along z", run_launch<2> },
    { "a launch: no threads", "kernel ones: it is not launched: its blocks have no threads", run_launch<3> },
    { "rows", NULL, run_rows<0> },
    { "rows: a pitch below the width", "cudaMemcpy2D with rows of 16 bytes that are 8 bytes apart", run_rows<1> },
    { "rows: one too many", "cudaMemcpy to behind the end of an allocation", run_rows<2> },
    { "rows: freed from within", "cudaFree of what was not allocated", run_rows<3> },
    { NULL, NULL, NULL },
};
