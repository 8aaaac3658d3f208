/* rows.cuh -- sums over rows and over columns, in a fixed order.
 *
 * A block has up to ROWS rows of a matrix, and WARPS warps of 32 lanes.
 *   over a row     lane l adds columns l, l + 32, ...; then the 32 sums are added from left to right
 *   over a column  GROUPS threads add rows g, g + GROUPS, ...; then their sums are added in order of g
 * So the bits depend on the width, not on the grid, and no atomic addition is needed.
 *
 *   1  naive: a thread a row.  Neighbouring threads read addresses a row apart: 32 transactions for 32 numbers
 *   2  a warp a row, five shuffles to add its lanes: coalesced; but a row of 64 is 2 additions and 5 exchanges
 *   3  (this) a warp adds several rows, lane by lane; the partial sums go through shared memory once, where a thread
 *      adds those of a row.  Rows of the array are 33 apart, so that 32 threads read 32 banks
 */
#ifndef ORRERY_CUDA_ROWS_CUH
#define ORRERY_CUDA_ROWS_CUH

#include "emulated_devices/device/cuda/kernels/numbers.cuh"

enum { ROWS = 32, LANES = 32, WARPS = 8 };

template <typename W> struct row_room { W part[ROWS][LANES + 1], total[ROWS]; };

__device__ __forceinline__ int64_t thread_of_block() { return (int64_t)threadIdx.y * LANES + threadIdx.x; }

struct added { template <typename W> __device__ W operator()(W a, W b) const { return a + b; } };
/* A NaN is kept. */
struct largest { template <typename W> __device__ W operator()(W a, W b) const { return b > a || b != b ? b : a; } };

/* room.total[r] = `start`, joined with f(r, d) for all d below D, for `rows` rows.  All threads of a block (32, WARPS)
 * call it. */
template <typename W, typename J, typename F>
__device__ void over_rows(row_room<W> &room, int64_t rows, int64_t D, W start, J join, F f)
{
    const int64_t me = thread_of_block();
    __syncthreads();                            /* what the last call left has been read */
    for (int64_t r = threadIdx.y; r < rows; r += WARPS) {
        W sum = start;
        for (int64_t d = threadIdx.x; d < D; d += LANES) sum = join(sum, f(r, d));
        room.part[r][threadIdx.x] = sum;
    }
    __syncthreads();
    if (me < rows) {
        W sum = start;
        for (int l = 0; l < LANES; l++) sum = join(sum, room.part[me][l]);
        room.total[me] = sum;
    }
    __syncthreads();
}

/* f(r, d) for all elements of the block's rows. */
template <typename F> __device__ void for_rows(int64_t rows, int64_t D, F f)
{
    for (int64_t r = threadIdx.y; r < rows; r += WARPS)
        for (int64_t d = threadIdx.x; d < D; d += LANES) f(r, d);
}

/* Blocks for N rows: four for each multiprocessor, if there are so many rows that WARPS are left for each block. */
static inline dim3 row_blocks(int64_t N)
{
    static int processors;
    if (processors == 0) {
        int device = 0;
        if (cudaGetDevice(&device) != cudaSuccess ||
            cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
            processors = 1;
    }
    int64_t each = blocks_of(N, 4 * (int64_t)processors);
    each = each < WARPS ? (int64_t)WARPS : each > ROWS ? (int64_t)ROWS : each;
    return dim3((unsigned)blocks_of(N, each));
}
#define ROW_GRID(N) row_blocks(N), dim3(LANES, WARPS)

/* The block's first row, and how many it has: ROWS at most, in a grid of row_blocks. */
struct row_range { int64_t first, count; };
__device__ __forceinline__ row_range rows_here(int64_t N)
{
    const int64_t each = (N + gridDim.x - 1) / gridDim.x, first = (int64_t)blockIdx.x * each;
    return { first, N - first < each ? N - first : each };
}

/* The sum over n below N of f(n) for column blockIdx.x * COLUMNS + threadIdx.x; valid where threadIdx.y is 0.  All
 * threads of a block (COLUMNS, GROUPS) call it.  16 columns of fp32 are two whole sectors; 32 would be half as many
 * blocks, which a GPU has not enough of. */
enum { COLUMNS = 16, GROUPS = 32 };
template <typename W, typename F> __device__ W over_column(W (&part)[GROUPS][COLUMNS], int64_t N, bool column, F f)
{
    W sum = 0;
    for (int64_t n = threadIdx.y; column && n < N; n += GROUPS) sum += f(n);
    __syncthreads();
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0) return 0;
    for (int g = 1; g < GROUPS; g++) sum += part[g][threadIdx.x];
    return sum;
}
#define COLUMN_GRID(D) dim3((unsigned)blocks_of(D, COLUMNS)), dim3(COLUMNS, GROUPS)

/* The sum of what each thread of a block (THREADS) has, in a tree of halves; valid in thread 0. */
template <int THREADS> __device__ __forceinline__ double tree_sum(double (&part)[THREADS], double own)
{
    part[threadIdx.x] = own;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    return threadIdx.x == 0 ? part[0] : 0;
}

#endif
