/* Kernels that are right with FAULT 0; each other number is a mistake that one makes.  Nothing else differs. */
#include "tests/devices/cuda/judged.cuh"

/* ---- a sum, block by block --------------------------------------------------------------------------------------- */

enum { THREADS = 64 };

template <int FAULT> __global__ void block_sums(float *out, const float *x, int n)
{
    __shared__ float s[THREADS];
    __shared__ int counter;
    const int t = threadIdx.x, i = blockIdx.x * THREADS + t;
    if (FAULT == 9 && i >= n) return;                           /* and the barriers below? */
    if (FAULT == 3) s[t] = x[i];                                /* no guard for the tail */
    else if (FAULT == 5) { if (i < n) s[t] = x[i]; }            /* and else? */
    else s[t] = i < n ? x[i] : 0;
    if (FAULT == 10) { if (t == 0) counter = 0; __syncthreads(); counter++; }
    for (int half = FAULT == 6 ? THREADS / 4 : THREADS / 2; half > 0; half /= 2) {
        if (FAULT == 8) {
            if (t < half) { __syncthreads(); s[t] += s[t + half]; }
            continue;
        }
        if (FAULT != 1 && !(FAULT == 2 && half == THREADS / 2)) __syncthreads();
        if (FAULT == 4 || t < half) s[t] += s[t + half];
    }
    if (FAULT == 7 || t == 0) out[blockIdx.x] = s[0];
}

template <int FAULT> static int run_block_sums(void)
{
    const int n = 150, blocks = 3;
    ramp x(n);
    numbers<float> out(blocks);
    float got[blocks], want[blocks] = { 0 };
    for (int i = 0; i < n; i++) want[i / THREADS] += x.host[i];
    LAUNCH(block_sums<FAULT>, dim3(blocks), dim3(THREADS), 0, out.data, x.data, n);
    out.get(got);
    return differ(got, want, blocks);
}

/* ---- the last block adds what the others have stored ------------------------------------------------------------- */

template <int FAULT> __global__ void last_block_sum(float *sum, float *part, unsigned *finished, const float *x, int n)
{
    __shared__ float s[THREADS];
    __shared__ bool last;
    const int t = threadIdx.x, i = blockIdx.x * THREADS + t;
    s[t] = i < n ? x[i] : 0;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) s[t] += s[t + half];
    }
    if (t == 0) {
        part[blockIdx.x] = s[0];
        if (FAULT != 1) __threadfence();
        const unsigned before = FAULT == 2 ? (*finished)++ : atomicAdd(finished, 1u);
        last = before == gridDim.x - 1;
    }
    if (FAULT != 3) __syncthreads();
    if (!last) return;
    if (t == 0) {
        float all = 0;
        for (unsigned b = 0; b < gridDim.x; b++) all += part[b];
        *sum = all;
    }
}

template <int FAULT> static int run_last_block(void)
{
    const int n = 250, blocks = 4;
    ramp x(n);
    numbers<float> sum(1), part(blocks);
    numbers<unsigned> finished(1);
    float got, want = 0;
    for (int i = 0; i < n; i++) want += x.host[i];
    if (FAULT != 4) finished.zero();
    LAUNCH(last_block_sum<FAULT>, dim3(blocks), dim3(THREADS), 0, sum.data, part.data, finished.data, x.data, n);
    sum.get(&got);
    return got != want;
}

/* ---- a sum in a warp --------------------------------------------------------------------------------------------- */

template <int FAULT> __global__ void warp_sum(float *out, const float *x)
{
    __shared__ volatile float s[64];
    const int lane = threadIdx.x;
    float sum = x[lane];
    if (FAULT == 3) {                                           /* as before Volta: a warp is not in step any more */
        s[lane] = sum, s[lane + 32] = 0;
        for (int by = 16; by > 0; by /= 2) s[lane] = s[lane] + s[lane + by];
        sum = s[0];
    } else if (FAULT == 2) {
        if (lane < 16) for (int by = 8; by > 0; by /= 2) sum += __shfl_down_sync(0xffffffffu, sum, by);
    } else if (FAULT == 6) {
        if (lane < 16) sum = __any_sync(0xffffffffu, sum > 0);
        else sum = __shfl_down_sync(0xffffffffu, sum, 1);
    } else {
        const unsigned mask = FAULT == 1 ? 0x7fffffffu : FAULT == 5 ? 0x0000ffffu : 0xffffffffu;
        if (FAULT == 5 && lane >= 16) return;
        for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(mask, sum, by, FAULT == 4 ? 24 : 32);
    }
    if (lane == 0) *out = sum;
}

template <int FAULT> static int run_warp_sum(void)
{
    ramp x(32);
    numbers<float> out(1);
    float got, want = 0;
    for (int i = 0; i < 32; i++) want += x.host[i];
    LAUNCH(warp_sum<FAULT>, dim3(1), dim3(FAULT == 7 ? 16 : 32), 0, out.data, x.data);
    out.get(&got);
    return got != want;
}

/* ---- a transpose by tiles ---------------------------------------------------------------------------------------- */

enum { TILE = 8 };

template <int FAULT> __global__ void transpose(float *y, const float *x, int rows, int cols)
{
    __shared__ float tile[TILE][TILE + 1];
    const int c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE + threadIdx.y;
    if (FAULT == 5 && (r >= rows || c >= cols)) return;
    if (FAULT == 1) tile[threadIdx.y + 1][threadIdx.x + (threadIdx.y == TILE - 1 ? 1 : 0)] = x[0];
    else if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
    if (FAULT != 2) __syncthreads();
    const int to_c = blockIdx.y * TILE + threadIdx.x, to_r = blockIdx.x * TILE + threadIdx.y;
    if (FAULT == 3 || (to_r < cols && to_c < rows))
        y[FAULT == 4 ? to_c * rows + to_r : to_r * rows + to_c] = FAULT == 3 ? 1.0f : tile[threadIdx.x][threadIdx.y];
}

template <int FAULT> static int run_transpose(void)
{
    const int rows = 13, cols = 21;
    ramp x(rows * cols);
    numbers<float> y(rows * cols);
    float got[rows * cols], want[rows * cols];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) want[c * rows + r] = x.host[r * cols + c];
    LAUNCH(transpose<FAULT>, dim3((cols + TILE - 1) / TILE, (rows + TILE - 1) / TILE), dim3(TILE, TILE), 0, y.data,
           x.data, rows, cols);
    y.get(got);
    return differ(got, want, rows * cols);
}

/* ---- prefix sums in one block ------------------------------------------------------------------------------------ */

template <int FAULT> __global__ void prefix_sums(float *y, const float *x)
{
    __shared__ float s[THREADS], other[THREADS];
    const int t = threadIdx.x;
    s[t] = x[t];
    if (FAULT != 2) __syncthreads();
    for (int by = 1; by < THREADS; by *= 2) {
        if (FAULT == 1) {                                       /* the sum may be stored before a neighbour has read */
            if (t >= by) s[t] += s[t - by];
            __syncthreads();
        } else if (FAULT == 4) {                                /* two arrays, but always in the same direction */
            other[t] = t >= by ? s[t] + s[t - by] : s[t];
            s[t] = other[t];
            __syncthreads();
        } else {
            const float sum = FAULT == 3 ? (t > by ? s[t] + s[t - by] : s[t]) : t >= by ? s[t] + s[t - by] : s[t];
            __syncthreads();
            s[t] = sum;
            __syncthreads();
        }
    }
    y[t] = s[t];
}

template <int FAULT> static int run_prefix_sums(void)
{
    ramp x(THREADS);
    numbers<float> y(THREADS);
    float got[THREADS], want[THREADS], sum = 0;
    for (int i = 0; i < THREADS; i++) want[i] = sum += x.host[i];
    LAUNCH(prefix_sums<FAULT>, dim3(1), dim3(THREADS), 0, y.data, x.data);
    y.get(got);
    return differ(got, want, THREADS);
}

/* ---- a product of matrices by tiles ------------------------------------------------------------------------------ */

template <int FAULT> __global__ void product(float *y, const float *a, const float *b, int M, int N, int K)
{
    __shared__ float at[TILE][TILE], bt[TILE][TILE], acc[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y, c = blockIdx.x * TILE + tx, r = blockIdx.y * TILE + ty;
    const int tiles = FAULT == 3 ? K / TILE : (K + TILE - 1) / TILE;
    float sum = 0;
    __half low = __float2half_rn(0);
    if (FAULT != 7) acc[ty][tx] = 0;
    for (int k0 = 0; k0 < tiles * TILE; k0 += TILE) {
        const bool guard = FAULT != 4;
        at[ty][tx] = r < M && (!guard || k0 + tx < K) ? a[r * K + k0 + tx] : 0;
        bt[ty][tx] = c < N && (!guard || k0 + ty < K) ? b[(k0 + ty) * (FAULT == 5 ? K : N) + c] : 0;
        if (FAULT != 1) __syncthreads();
        for (int k = 0; k < TILE; k++) {
            if (FAULT == 6) low = __float2half_rn(__half2float(low) + at[ty][k] * bt[k][tx]);
            else if (FAULT == 7) acc[ty][tx] += at[ty][k] * bt[k][tx];
            else sum += at[ty][k] * bt[k][tx];
        }
        if (FAULT != 2) __syncthreads();
    }
    if (r < M && c < N) y[r * N + c] = FAULT == 6 ? __half2float(low) : FAULT == 7 ? acc[ty][tx] : sum;
}

template <int FAULT> static int run_product(void)
{
    const int M = 11, N = 10, K = FAULT == 6 ? 1000 : 21;
    static float got[M * N], want[M * N];
    numbers<float> a(M * K), b(K * N), y(M * N);
    float *ha = new float[M * K], *hb = new float[K * N];
    for (int i = 0; i < M * K; i++) ha[i] = FAULT == 6 ? 3 : small(i);
    for (int i = 0; i < K * N; i++) hb[i] = FAULT == 6 ? 3 : small(i + 3);
    a.put(ha), b.put(hb);
    for (int r = 0; r < M; r++)
        for (int c = 0; c < N; c++) {
            want[r * N + c] = 0;
            for (int k = 0; k < K; k++) want[r * N + c] += ha[r * K + k] * hb[k * N + c];
        }
    LAUNCH(product<FAULT>, dim3((N + TILE - 1) / TILE, (M + TILE - 1) / TILE), dim3(TILE, TILE), 0, y.data, a.data,
           b.data, M, N, K);
    y.get(got);
    delete[] ha;
    delete[] hb;
    return differ(got, want, M * N);
}

/* ---- a copy, four numbers at a time; and memory that is not what it should be ------------------------------------ */

template <int FAULT> __global__ void copy4(float *y, const float *x, int n)
{
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (FAULT == 1 && i + 5 <= n) *(float4 *)(y + i) = *(const float4 *)(x + i + 1);
    else if (FAULT == 2 ? i < n : i + 4 <= n) *(float4 *)(y + i) = *(const float4 *)(x + i);
    else for (int k = i; k < n; k++) y[k] = x[k];
}

template <int FAULT> static int run_copy4(void)
{
    const int n = 102;
    ramp x(n);
    numbers<float> y(n);
    float got[n], host[128] = { 0 };
    const float *from = x.data;
    float *freed = NULL;
    if (FAULT == 3) from = host;
    if (FAULT == 4) {
        cudaMalloc((void **)&freed, sizeof host), cudaMemset(freed, 0, sizeof host), cudaFree(freed);
        from = freed;
    }
    if (FAULT == 5) from = NULL;
    if (FAULT == 6) cudaMalloc((void **)&freed, 100);           /* and never freed */
    if (FAULT == 7) cudaMalloc((void **)&freed, sizeof host), from = freed;        /* and never filled */
    if (FAULT != 5) LAUNCH(copy4<FAULT>, dim3(1), dim3(32), 0, y.data, from, n);
    else LAUNCH(copy4<FAULT>, dim3(1), dim3(32), 0, y.data, x.data - 512, n);
    y.get(got);
    if (FAULT == 7) cudaFree(freed);
    return differ(got, x.host, n);
}

/* ---- a histogram ------------------------------------------------------------------------------------------------- */

enum { BINS = 16 };

template <int FAULT> __global__ void histogram(int *count, const float *x, int n)
{
    __shared__ int bin[BINS];
    const int t = threadIdx.x;
    if (FAULT != 2 && t < BINS) bin[t] = 0;
    if (FAULT != 3) __syncthreads();
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += blockDim.x * gridDim.x) {
        const int b = ((int)x[i] + 5) % BINS;
        if (FAULT == 1) bin[b]++;
        else atomicAdd(&bin[b], 1);
    }
    if (FAULT != 4) __syncthreads();
    if (t >= BINS) return;
    if (FAULT == 5) count[t] += bin[t];
    else atomicAdd(&count[t], bin[t]);
}

template <int FAULT> static int run_histogram(void)
{
    const int n = 500;
    ramp x(n);
    numbers<int> count(BINS);
    int got[BINS], want[BINS] = { 0 };
    for (int i = 0; i < n; i++) want[((int)x.host[i] + 5) % BINS]++;
    count.zero();
    LAUNCH(histogram<FAULT>, dim3(3), dim3(THREADS), 0, count.data, x.data, n);
    count.get(got);
    return memcmp(got, want, sizeof want) != 0;
}

/* ---- a softmax, and a loop over the grid ------------------------------------------------------------------------- */

template <int FAULT> __global__ void softmax(float *y, const float *x, int n)
{
    DYNAMIC_SHARED(float, s);
    const int t = threadIdx.x;
    float high = -INFINITY, sum = 0;
    for (int i = t; i < n; i += blockDim.x) high = x[i] > high ? x[i] : high;
    s[t] = high;
    if (FAULT != 1) __syncthreads();
    for (unsigned k = 0; k < blockDim.x; k++) high = s[k] > high ? s[k] : high;
    if (FAULT == 2) high = 0;
    for (int i = t; i < n; i += blockDim.x) sum += expf(x[i] - high);
    if (FAULT != 3) __syncthreads();
    s[t] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned k = 0; k < blockDim.x; k++) sum += s[k];
    for (int i = t; i < n; i += blockDim.x) y[i] = expf(x[i] - high) / sum;
}

template <int FAULT> static int run_softmax(void)
{
    const int n = 100, threads = 32;
    ramp x(n);
    numbers<float> y(n);
    float got[n], sum = 0;
    for (int i = 0; i < n; i++) x.host[i] += 100;
    x.put(x.host);
    LAUNCH(softmax<FAULT>, dim3(1), dim3(threads), FAULT == 4 ? threads * 2 : threads * 4, y.data, x.data, n);
    y.get(got);
    for (int i = 0; i < n; i++) sum += got[i];
    return !(fabsf(sum - 1) < 1e-5f);
}

template <int FAULT> __global__ void add_one(float *y, const float *x, int n)
{
    const int step = FAULT == 1 ? blockDim.x : blockDim.x * gridDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; FAULT == 2 ? i <= n : i < n; i += step) y[i] = x[i] + 1;
}

template <int FAULT> static int run_add_one(void)
{
    const int n = 300;
    ramp x(n);
    numbers<float> y(n);
    float got[n];
    LAUNCH(add_one<FAULT>, dim3(2), dim3(THREADS), 0, y.data, x.data, n);
    y.get(got);
    for (int i = 0; i < n; i++) x.host[i]++;
    return differ(got, x.host, n);
}

/* ---- parts of vectors, atomics that do not go together, and indices that are far away ---------------------------- */

template <int FAULT> __global__ void far_and_wide(float *y, unsigned long long *sum, const float *x, int n)
{
    const int t = threadIdx.x;
    if (FAULT == 1) {                                           /* a compiler makes two reads of 4 bytes of it */
        const float4 v = *(const float4 *)(x + 1);
        y[t] = v.x + v.w;
    }
    if (FAULT == 2) {
        if (t % 2) atomicAdd(sum, 1ull);
        else atomicAdd((unsigned *)sum, 1u);
    }
    if (FAULT == 3) {                                           /* it may have any number of the others' */
        atomicAdd(sum, 1ull);
        y[t] = (float)*sum;
    }
    if (FAULT == 4) y[t] = x[(unsigned)t - n];                  /* below 0, and unsigned */
    if (FAULT == 0) y[t] = x[t], atomicAdd(sum, 1ull);
}

template <int FAULT> static int run_far_and_wide(void)
{
    ramp x(THREADS);
    numbers<float> y(THREADS);
    numbers<unsigned long long> sum(1);
    sum.zero();
    LAUNCH(far_and_wide<FAULT>, dim3(1), dim3(THREADS), 0, y.data, sum.data, x.data, THREADS);
    return 0;
}

/* ---- results that nobody writes, and too much shared memory ------------------------------------------------------ */

/* Two numbers a thread, from both ends to the middle: with 11 numbers the one in the middle is nobody's. */
template <int FAULT> __global__ void reversed(float *y, const float *x, int n)
{
    const int i = threadIdx.x, other = n - 1 - i;
    if (i < n / 2) y[i] = x[other], y[other] = x[i];
    if (FAULT != 1 && n % 2 == 1 && i == n / 2) y[i] = x[i];
}

template <int FAULT> static int run_reversed(void)
{
    const int n = 11;
    ramp x(n);
    numbers<float> y(n), copy(n);
    float got[n];
    LAUNCH(reversed<FAULT>, dim3(1), dim3(32), 0, y.data, x.data, n);
    cudaMemcpy(copy.data, y.data, sizeof got, cudaMemcpyDeviceToDevice);
    copy.get(got);
    return 0;
}

/* nvcc gives the arrays of a kernel 48 KiB; what has more is no program for a GPU. */
#ifdef __CUDACC__
enum { TOO_MANY = 96 };
#else
enum { TOO_MANY = 100 };
#endif

template <int FAULT> __global__ void both_tiles(float *y, const float *x)
{
    enum { ROWS = FAULT == 1 ? TOO_MANY : 96 };
    DYNAMIC_SHARED(float, more);
    __shared__ float a[ROWS][64], b[95][64];
    const int t = threadIdx.x;
    a[ROWS - 1][t] = x[t];
    b[94][t] = x[63 - t];
    if (FAULT == 2) more[t] = 0;
    __syncthreads();
    y[t] = a[ROWS - 1][63 - t] - b[94][t];
}

template <int FAULT> static int run_both_tiles(void)
{
    ramp x(THREADS);
    numbers<float> y(THREADS);
    float got[THREADS], want[THREADS] = { 0 };
    LAUNCH(both_tiles<FAULT>, dim3(1), dim3(THREADS), FAULT == 2 ? 512 : 256, y.data, x.data);
    y.get(got);
    return differ(got, want, THREADS);
}

/* A bin for each signed byte; negative ones are below the first. */
template <int FAULT> __global__ void signed_bins(int *count, const signed char *x, int n)
{
    __shared__ int bins[64];
    const int t = threadIdx.x;
    bins[t] = 0;
    __syncthreads();
    if (t < n) atomicAdd(&bins[FAULT == 1 ? x[t] : x[t] + 32], 1);
    __syncthreads();
    count[t] = bins[t];
}

template <int FAULT> static int run_signed_bins(void)
{
    signed char host[THREADS];
    numbers<signed char> x(THREADS);
    numbers<int> count(THREADS);
    int got[THREADS];
    for (int i = 0; i < THREADS; i++) host[i] = (signed char)(i % 10 - 3);
    x.put(host);
    LAUNCH(signed_bins<FAULT>, dim3(1), dim3(THREADS), 0, count.data, x.data, THREADS);
    count.get(got);
    return got[32] != 7;
}

/* ---- calls of the host: on a GPU each returns an error, which is easily not looked at ---------------------------- */

template <int FAULT> static int run_host(void)
{
    float host[THREADS] = { 0 };
    numbers<float> x(THREADS), y(THREADS);
    const size_t bytes = sizeof host;
    float *small_one;
    cudaMalloc((void **)&small_one, THREADS);                   /* elements, not bytes */
    x.zero();
    cudaMemcpy(FAULT == 1 ? small_one : x.data, host, bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(host, FAULT == 2 ? small_one : x.data, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(host, x.data, bytes, FAULT == 3 ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
    cudaMemcpy(x.data, host, bytes, FAULT == 4 ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice);
    cudaMemset(FAULT == 5 ? small_one : x.data, 0, bytes);
    cudaMemset(FAULT == 6 ? host : x.data, 0, bytes);
    cudaFree(small_one);
    if (FAULT == 7) cudaFree(small_one);
    const int blocks = FAULT == 8 ? 0 : 1, threads = FAULT == 9 ? 1025 : 32, most = 48 << 10;
    LAUNCH(add_one<0>, blocks, threads, FAULT == 10 ? most + 4 : most, y.data, x.data, THREADS);
    return 0;
}

/* ---- lanes that hand numbers to each other by shared memory, and what does not order it -------------------------- */

template <int FAULT> __global__ void neighbours(float *y, const float *x)
{
    __shared__ float s[32];
    const int lane = threadIdx.x;
    s[lane] = x[lane];
    if (FAULT == 1) __ballot_sync(0xffffffffu, 1);              /* a vote is no barrier of memory */
    else if (FAULT == 2) __shfl_xor_sync(0xffffffffu, 1, 1);    /* nor is a shuffle */
    else __syncwarp();
    y[lane] = s[lane ^ 1];
}

template <int FAULT> static int run_neighbours(void)
{
    ramp x(32);
    numbers<float> y(32);
    float got[32], want[32];
    for (int i = 0; i < 32; i++) want[i] = x.host[i ^ 1];
    LAUNCH(neighbours<FAULT>, dim3(1), dim3(32), 0, y.data, x.data);
    y.get(got);
    return differ(got, want, 32);
}

/* ---- variables of the file --------------------------------------------------------------------------------------- */

__device__ float of_block[4];
__device__ int is_there[4];
__device__ unsigned counted;

template <int FAULT> __global__ void blocks_in_turn(float *y, const float *x, int n)
{
    const int b = blockIdx.x;
    float before = 0;
    if (FAULT == 1) {                                           /* read by others, with no order at all */
        of_block[b] = x[b], is_there[b] = 1;
        for (int k = 0; k < b; k++) {
            while (is_there[k] == 0) continue;
            before += of_block[k];
        }
    } else {
        if (FAULT == 2) counted++;                              /* by all blocks */
        else atomicAdd(&counted, 1u);
        for (int k = 0; k < b; k++) before += x[k];
    }
    if (b < n) y[b] = before;
}

template <int FAULT> static int run_blocks_in_turn(void)
{
    ramp x(4);
    numbers<float> y(4);
    float got[4], want[4] = { 0 };
    const unsigned none = 0;
    cudaMemcpyToSymbol(counted, &none, sizeof none);
    for (int i = 1; i < 4; i++) want[i] = want[i - 1] + x.host[i - 1];
    LAUNCH(blocks_in_turn<FAULT>, dim3(4), dim3(1), 0, y.data, x.data, 4);
    y.get(got);
    return differ(got, want, 4);
}

/* ---- the host computes what a kernel should ---------------------------------------------------------------------- */

/* nvcc refuses a kernel that reads a variable of the host, so there the kernel reads a device's variable, which the host's
 * writes do not reach. */
#ifdef __CUDACC__
__device__
#else
static
#endif
float of_the_host[4];
template <int FAULT> __global__ void copies(float *y, const float *x)
{
    y[threadIdx.x] = FAULT == 2 ? of_the_host[threadIdx.x] : 2 * x[threadIdx.x];
}

template <int FAULT> static int run_copies(void)
{
    ramp x(4);
    numbers<float> y(4);
    float got[4], want[4];
    for (int i = 0; i < 4; i++) want[i] = 2 * x.host[i];
    if (FAULT == 2) for (int i = 0; i < 4; i++) of_the_host[i] = 2 * x.host[i];
    LAUNCH(copies<FAULT>, dim3(1), dim3(4), 0, y.data, x.data);
    if (FAULT == 1) for (int i = 0; i < 4; i++) y.data[i] = 2 * x.data[i];
    y.get(got);
    return differ(got, want, 4);
}

/* ---- memcpy in a kernel ------------------------------------------------------------------------------------------ */

template <int FAULT> __global__ void copy_rows(float *y, const float *x, int cols)
{
    memcpy(y + threadIdx.x * cols, x + threadIdx.x * cols, (size_t)(cols + (FAULT == 1)) * sizeof *y);
}

template <int FAULT> static int run_copy_rows(void)
{
    ramp x(12);
    numbers<float> y(12);
    float got[12];
    LAUNCH(copy_rows<FAULT>, dim3(1), dim3(4), 0, y.data, x.data, 3);
    y.get(got);
    return differ(got, x.host, 12);
}

const struct judged faulty_kernels[] = {
    { "block sums: no barrier in the tree", "race", run_block_sums<1> },
    { "block sums: no barrier before the tree", "race", run_block_sums<2> },
    { "block sums: no guard for the tail", "out of bounds", run_block_sums<3> },
    { "block sums: every thread adds", "out of bounds", run_block_sums<4> },
    { "block sums: an accumulator is not written", "not written", run_block_sums<5> },
    { "block sums: the tree begins too low", "wrong", run_block_sums<6> },
    { "block sums: all threads store", "race", run_block_sums<7> },
    { "block sums: a barrier inside an if", "the latter thread ended before a barrier of its block", run_block_sums<8> },
    { "block sums: a return before a barrier", "not written", run_block_sums<9> },
    { "block sums: a lost update", "race", run_block_sums<10> },
    { "last block: no fence", "race", run_last_block<1> },
    { "last block: a plain counter", "race", run_last_block<2> },
    { "last block: no barrier after the flag", "shared array last", run_last_block<3> },
    { "last block: the counter is not cleared", "not written", run_last_block<4> },
    { "warp sum: a mask without a lane", "a lane names a mask without itself", run_warp_sum<1> },
    { "warp sum: half of the lanes never come", "a lane that does not give one", run_warp_sum<2> },
    { "warp sum: as if a warp were in step", "race", run_warp_sum<3> },
    { "warp sum: a width of 24", "no power of two", run_warp_sum<4> },
    { "warp sum: a lane that does not give", "a lane that does not give one", run_warp_sum<5> },
    { "warp sum: two functions for one mask", "different functions", run_warp_sum<6> },
    { "warp sum: half a warp with a whole mask", "a lane that the block does not have", run_warp_sum<7> },
    { "transpose: a row too many", "out of bounds", run_transpose<1> },
    { "transpose: no barrier", "race", run_transpose<2> },
    { "transpose: no guard for the edge", "out of bounds", run_transpose<3> },
    { "transpose: rows and columns of the result", "wrong", run_transpose<4> },
    { "transpose: a return at the edge", "not written", run_transpose<5> },
    { "prefix sums: write after read", "race", run_prefix_sums<1> },
    { "prefix sums: no barrier after loading", "race", run_prefix_sums<2> },
    { "prefix sums: one too far", "wrong", run_prefix_sums<3> },
    { "prefix sums: two arrays in one direction", "race", run_prefix_sums<4> },
    { "product: no barrier after loading", "race", run_product<1> },
    { "product: no barrier after using", "race", run_product<2> },
    { "product: the last tile is left out", "wrong", run_product<3> },
    { "product: no guard for the last tile", "out of bounds", run_product<4> },
    { "product: the wrong stride", "wrong", run_product<5> },
    { "product: sums in fp16", "wrong", run_product<6> },
    { "product: an accumulator is not cleared", "not written", run_product<7> },
    { "copy: vectors that are not aligned", "misaligned", run_copy4<1> },
    { "copy: a vector over the end", "out of bounds", run_copy4<2> },
    { "copy: memory of the host", "host pointer", run_copy4<3> },
    { "copy: memory that was freed", "after free", run_copy4<4> },
    { "copy: an address before all memory", "bytes before memory of", run_copy4<5> },
    { "copy: a leak", "leak", run_copy4<6> },
    { "copy: memory that nobody filled", "not written", run_copy4<7> },
    { "histogram: a lost update", "race", run_histogram<1> },
    { "histogram: bins are not cleared", "not written", run_histogram<2> },
    { "histogram: no barrier after clearing", "race", run_histogram<3> },
    { "histogram: no barrier before storing", "race", run_histogram<4> },
    { "histogram: blocks add without atomics", "race", run_histogram<5> },
    { "softmax: no barrier before the maximum", "race", run_softmax<1> },
    { "softmax: without the maximum", "wrong", run_softmax<2> },
    { "softmax: sums where maxima are still read", "race", run_softmax<3> },
    { "softmax: too little dynamic memory", "out of bounds", run_softmax<4> },
    { "add one: blocks step as if alone", "race", run_add_one<1> },
    { "add one: up to n", "out of bounds", run_add_one<2> },
    { "far and wide: parts of a vector", "is not a multiple of 16", run_far_and_wide<1> },
    { "far and wide: atomics of two sizes", "an atomic of 8 bytes by|an atomic of 4 bytes by", run_far_and_wide<2> },
    { "far and wide: a read beside atomics", "race", run_far_and_wide<3> },
    { "far and wide: an unsigned index below 0", "an index far too large or below 0", run_far_and_wide<4> },
    { "signed bins: below the first", "shared array bins has 256 bytes, and this is 12 bytes before it", run_signed_bins<1> },
    { "reversed: the number in the middle", "takes 4 bytes that nobody has written, first byte 20 of 44", run_reversed<1> },
    { "both tiles: more than 48 KiB", "its arrays have more than 48 KiB, which nvcc refuses: a (25600 bytes), b (24320 bytes)",
      run_both_tiles<1> },
    { "both tiles: and dynamic memory", "its arrays and 512 bytes of dynamic shared memory are more than", run_both_tiles<2> },
    { "host: a copy into too little", "cudaMemcpy to behind the end of an allocation", run_host<1> },
    { "host: a copy of too much", "cudaMemcpy from behind the end of an allocation", run_host<2> },
    { "host: a copy the other way round", "to memory of the host, as if it were the device's", run_host<3> },
    { "host: a copy of the host's", "from memory of the host, as if it were the device's", run_host<4> },
    { "host: too much is set", "cudaMemset behind the end", run_host<5> },
    { "host: its own memory is set", "cudaMemset of memory that is not the device's", run_host<6> },
    { "host: freed twice", "cudaFree of what was not allocated", run_host<7> },
    { "host: no blocks", "kernel add_one<0>: it is not launched: its grid has no blocks", run_host<8> },
    { "host: too many threads", "it is not launched: its blocks have more than 1024", run_host<9> },
    { "host: too much shared memory", "more dynamic shared memory than 48 KiB", run_host<10> },
    { "neighbours: a vote as a barrier", "race", run_neighbours<1> },
    { "neighbours: a shuffle as a barrier", "race", run_neighbours<2> },
    { "blocks in turn: no fence and no atomic", "not ordered: variable is_there, byte", run_blocks_in_turn<1> },
    { "blocks in turn: a lost update", "not ordered: variable counted, byte", run_blocks_in_turn<2> },
    { "copies: by the host", "host access: a read of 4 bytes by the host at faulty.cu", run_copies<1> },
    { "copies: a variable of the host", "variable of_the_host is used by the host and by kernels", run_copies<2> },
    { "copy rows: a number too many", "race", run_copy_rows<1> },
    { NULL, NULL, NULL },
};

/* The same kernels without their mistakes; tricky.cu adds to them. */
extern const struct judged right_kernels[] = {
    { "block sums", NULL, run_block_sums<0> }, { "last block", NULL, run_last_block<0> },
    { "warp sum", NULL, run_warp_sum<0> }, { "transpose", NULL, run_transpose<0> },
    { "prefix sums", NULL, run_prefix_sums<0> }, { "product", NULL, run_product<0> }, { "copy", NULL, run_copy4<0> },
    { "histogram", NULL, run_histogram<0> }, { "softmax", NULL, run_softmax<0> }, { "add one", NULL, run_add_one<0> },
    { "far and wide", NULL, run_far_and_wide<0> }, { "reversed", NULL, run_reversed<0> },
    { "signed bins", NULL, run_signed_bins<0> },
    { "both tiles", NULL, run_both_tiles<0> }, { "host", NULL, run_host<0> },
    { "neighbours", NULL, run_neighbours<0> }, { "blocks in turn", NULL, run_blocks_in_turn<0> },
    { "copies", NULL, run_copies<0> }, { "copy rows", NULL, run_copy_rows<0> },
    { NULL, NULL, NULL },
};
