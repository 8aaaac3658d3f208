/* Lesson 20: warps.  warps.h says what each function must do. */
#include "warps.h"
#include <math.h>

#SOLUTION
#define ALL_LANES 0xffffffffu

__device__ float sum_of_lanes(float sum)
{
    for (int by = {TREE: 16; by > 0; by /= 2|1; by < 32; by *= 2}) sum += __shfl_xor_sync(ALL_LANES, sum, by);
    return sum;
}

__device__ float max_of_lanes(float most)
{
    for (int by = 16; by > 0; by /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, most, by);
        most = other > most ? other : most;
    }
    return most;
}

/* A row's number is the same for all lanes of its warp: they return together. */
__global__ void sums_of_rows(float *y, const float *x, int rows, int cols)
{
    const int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0;
    for (int i = lane; i < cols; i += 32) sum += x[row * cols + i];
    sum = sum_of_lanes(sum);
    if (lane == 0) y[row] = sum;
}

__global__ void softmax_of_rows(float *y, const float *x, int rows, int cols)
{
    const int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    x += row * cols, y += row * cols;
    float most = -INFINITY, sum = 0;
    for (int i = lane; i < cols; i += 32) most = x[i] > most ? x[i] : most;
    most = max_of_lanes(most);
    for (int i = lane; i < cols; i += 32) sum += expf(x[i] - most);
    sum = sum_of_lanes(sum);
    for (int i = lane; i < cols; i += 32) y[i] = expf(x[i] - most) / sum;
}

void row_sums(float *y, const float *x, int rows, int cols)
{
    if (rows > 0) LAUNCH(sums_of_rows, dim3((rows + WARPS - 1) / WARPS), dim3(32 * WARPS), 0, y, x, rows, cols);
}

void softmax(float *y, const float *x, int rows, int cols)
{
    if (rows > 0) LAUNCH(softmax_of_rows, dim3((rows + WARPS - 1) / WARPS), dim3(32 * WARPS), 0, y, x, rows, cols);
}
#SKELETON
#| __global__ void sums_of_rows(float *y, const float *x, int rows, int cols)
#| {
#|     const int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
#|     (void)lane, (void)row, (void)y, (void)x, (void)rows, (void)cols;         /* your code */
#| }
#| 
#| void row_sums(float *y, const float *x, int rows, int cols)
#| {
#|     if (rows > 0) LAUNCH(sums_of_rows, dim3((rows + WARPS - 1) / WARPS), dim3(32 * WARPS), 0, y, x, rows, cols);
#| }
#| 
#| void softmax(float *y, const float *x, int rows, int cols)
#| {
#|     (void)y, (void)x, (void)rows, (void)cols;                                /* your code */
#| }
#END
