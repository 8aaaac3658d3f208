/* Right kernels that a judge may take for wrong ones. */
#include "tests/devices/cuda/judged.cuh"

enum { THREADS = 64 };

/* Each gets x [64] and y [64], which begins as zeros; WANT is what y[i] must be. */
#define KERNEL(name) __global__ void name(float *y, const float *x)
#define HERE_IS                                                                                                        \
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;                                                           \
    (void)lane, (void)warp, (void)x
#define RUN(name, threads, blocks, WANT)                                                                               \
    static int run_##name(void)                                                                                        \
    {                                                                                                                  \
        ramp in(THREADS);                                                                                              \
        numbers<float> out(THREADS);                                                                                   \
        const float *x = in.host;                                                                                      \
        float got[THREADS], want[THREADS];                                                                             \
        (void)x;                                                                                                       \
        for (int i = 0; i < THREADS; i++) want[i] = WANT;                                                              \
        out.zero();                                                                                                    \
        LAUNCH(name, dim3(blocks), dim3(threads), 0, out.data, in.data);                                               \
        out.get(got);                                                                                                  \
        return differ(got, want, THREADS);                                                                             \
    }

static inline float sum_of(const float *x, int from, int to)
{
    float sum = 0;
    for (int i = from; i < to; i++) sum += x[i];
    return sum;
}
static inline int positive(const float *x)
{
    int n = 0;
    for (int i = 0; i < THREADS; i++) n += x[i] > 0;
    return n;
}
static inline float float_of(int i) { float x; memcpy(&x, &i, 4); return x; }
static inline float float_of_bits_64() { return float_of(64); }
static inline float float_of_bits_2() { return float_of(2); }

KERNEL(syncwarp_tree)
{
    HERE_IS;
    __shared__ float s[THREADS];
    s[t] = x[t];
    for (int by = 16; by > 0; by /= 2) {
        __syncwarp();
        const float sum = lane < by ? s[t] + s[t + by] : 0;
        __syncwarp();
        if (lane < by) s[t] = sum;
    }
    if (lane == 0) y[t] = s[t];
}
RUN(syncwarp_tree, 64, 1, i % 32 == 0 ? sum_of(x, i, i + 32) : 0)

/* 4 bytes behind the index are nobody's, and are copied with it. */
struct largest { double value; int index; };
__device__ static bool is_larger(const largest &a, const largest &b)
{
    return a.value > b.value || (a.value == b.value && a.index < b.index);
}
__global__ void padded_structs(largest *out, const float *x)
{
    __shared__ largest s[THREADS];
    const int t = threadIdx.x;
    s[t].value = x[t], s[t].index = t;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half && is_larger(s[t + half], s[t])) s[t] = s[t + half];
    }
    if (t == 0) out->value = s[0].value, out->index = s[0].index;
}
static int run_padded_structs(void)
{
    ramp in(THREADS);
    numbers<largest> out(1);
    largest got;
    int want = 0;
    for (int i = 0; i < THREADS; i++) want = in.host[i] > in.host[want] ? i : want;
    LAUNCH(padded_structs, dim3(1), dim3(THREADS), 0, out.data, in.data);
    out.get(&got);
    return got.index != want;
}

KERNEL(two_buffers)
{
    HERE_IS;
    __shared__ float s[2][THREADS];
    int from = 0;
    s[0][t] = x[t];
    for (int by = 1; by < THREADS; by *= 2, from = 1 - from) {
        __syncthreads();
        s[1 - from][t] = t >= by ? s[from][t] + s[from][t - by] : s[from][t];
    }
    y[t] = s[from][t];
}
RUN(two_buffers, 64, 1, sum_of(x, 0, i + 1))

KERNEL(half_warps)
{
    HERE_IS;
    float sum = x[t];
    const unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    if (lane < 16) for (int by = 8; by > 0; by /= 2) sum += __shfl_xor_sync(mask, sum, by);
    else for (int by = 8; by > 0; by /= 2) sum += __shfl_xor_sync(mask, sum, by, 16);
    y[t] = sum;
}
RUN(half_warps, 32, 1, i < 32 ? sum_of(x, i / 16 * 16, i / 16 * 16 + 16) : 0)

KERNEL(leaves_after_the_last_barrier)
{
    HERE_IS;
    __shared__ float s[THREADS];
    s[t] = x[t];
    __syncthreads();
    if (t >= 32) return;
    y[t] = s[63 - t];
}
RUN(leaves_after_the_last_barrier, 64, 1, i < 32 ? x[63 - i] : 0)

KERNEL(own_slots_need_no_barrier)
{
    HERE_IS;
    __shared__ float s[THREADS];
    s[t] = x[t];
    for (int k = 0; k < 3; k++) s[t] = s[t] + 1;
    y[t] = s[t];
}
RUN(own_slots_need_no_barrier, 64, 1, x[i] + 3)

KERNEL(neighbouring_halves)
{
    HERE_IS;
    __shared__ __half s[THREADS];
    s[t] = __float2half_rn(x[t]);
    y[t] = __half2float(s[t]);
}
RUN(neighbouring_halves, 64, 1, x[i])

KERNEL(neighbouring_bytes)
{
    HERE_IS;
    __shared__ signed char s[THREADS];
    s[t] = (signed char)x[t];
    __syncthreads();
    y[t] = s[63 - t];
}
RUN(neighbouring_bytes, 64, 1, x[63 - i])

KERNEL(warps_in_their_own_parts)
{
    HERE_IS;
    __shared__ float s[THREADS];
    s[t] = x[t];
    __syncwarp();
    y[t] = s[warp * 32 + (lane + 1) % 32];
}
RUN(warps_in_their_own_parts, 64, 1, x[i / 32 * 32 + (i + 1) % 32])

KERNEL(counts_by_barrier)
{
    HERE_IS;
    const int many = __syncthreads_count(x[t] > 0), any = __syncthreads_or(t == 7), every = __syncthreads_and(1);
    y[t] = (float)(many + any + every);
}
RUN(counts_by_barrier, 64, 1, (float)(positive(x) + 2))

KERNEL(a_shared_counter)
{
    HERE_IS;
    __shared__ int next;
    if (t == 0) next = 0;
    __syncthreads();
    const int at = atomicAdd(&next, 1);
    y[at] = 1;
}
RUN(a_shared_counter, 64, 1, 1)

KERNEL(blocks_count_together)
{
    HERE_IS;
    atomicAdd((int *)y, 1);
    if (t > 0) y[blockIdx.x * 16 + t] = 1;
}
RUN(blocks_count_together, 16, 4, i == 0 ? float_of_bits_64() : i % 16 ? 1 : 0)

KERNEL(broadcast)
{
    HERE_IS;
    __shared__ float s;
    if (t == 5) s = x[5];
    __syncthreads();
    y[t] = s + __shfl_sync(0xffffffffu, x[t], 3);
}
RUN(broadcast, 64, 1, x[5] + x[i / 32 * 32 + 3])

KERNEL(votes_choose_a_mask)
{
    HERE_IS;
    const unsigned mask = __ballot_sync(0xffffffffu, lane % 3 == 0);
    if (lane % 3 == 0) y[t] = (float)(__popc(__ballot_sync(mask, 1)) + __any_sync(mask, lane == 9));
}
RUN(votes_choose_a_mask, 32, 1, i < 32 && i % 3 == 0 ? 12 : 0)

KERNEL(vectors)
{
    HERE_IS;
    const float4 v = ((const float4 *)x)[t];
    ((float4 *)y)[t] = make_float4(v.w, v.z, v.y, v.x);
}
RUN(vectors, 16, 1, x[i / 4 * 4 + 3 - i % 4])

KERNEL(a_message_by_fence_and_atomic)
{
    HERE_IS;
    if (t == 0) {
        y[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        if (atomicAdd((int *)y + 2, 1) == 1) y[3] = y[0] + y[1];
    }
}
RUN(a_message_by_fence_and_atomic, 32, 2, i < 2 ? x[i] : i == 2 ? float_of_bits_2() : i == 3 ? x[0] + x[1] : 0)

KERNEL(the_same_barrier_in_a_loop)
{
    HERE_IS;
    __shared__ float s[THREADS];
    float sum = 0;
    for (int k = 0; k < 4; k++) {
        s[t] = x[t] + (float)k;
        __syncthreads();
        sum += s[(t + k) % THREADS];
        __syncthreads();
    }
    y[t] = sum;
}
RUN(the_same_barrier_in_a_loop, 64, 1, x[i] + x[(i + 1) % 64] + x[(i + 2) % 64] + x[(i + 3) % 64] + 6)

/* As NVIDIA's guide writes it: the first number is read as it is. */
static __device__ float add_by_comparing(float *to, float x)
{
    int *p = (int *)to, old = *p, seen;
    do seen = old, old = atomicCAS(p, seen, __float_as_int(x + __int_as_float(seen)));
    while (old != seen);
    return __int_as_float(old);
}
static __device__ double add_by_comparing(double *to, double x)
{
    unsigned long long *p = (unsigned long long *)to, old = *p, seen;
    do {
        seen = old;
        const double sum = x + __longlong_as_double((long long)seen);
        old = atomicCAS(p, seen, (unsigned long long)__double_as_longlong(sum));
    } while (old != seen);
    return __longlong_as_double((long long)old);
}

KERNEL(floats_added_by_comparing)
{
    HERE_IS;
    __shared__ double sum;
    if (t == 0) sum = 0;
    __syncthreads();
    add_by_comparing(y, x[t]);
    add_by_comparing(&sum, (double)x[t]);
    __syncthreads();
    if (t == 1) y[1] = (float)sum;
}
RUN(floats_added_by_comparing, 64, 1, i < 2 ? sum_of(x, 0, 64) : 0)

/* A template's shared array of a class with constructors has a note of the compiler's beside it. */
template <typename T, typename T2> static __device__ float in_16_bits(const float *x, T2 two)
{
    __shared__ T s[THREADS];
    const int t = threadIdx.x;
    s[t] = T(x[t]);
    __syncthreads();
    T a = s[63 - t];
    a += s[t];
    if (a < T(0)) a = -a;
    a = __hmax(__hmin(a, T(3)), T(1)) * T(2) - T(1);
    two = __hadd2(__hmul2(two, two), two);
    return (float)a + __low2float(two) + __high2float(two);
}
static inline float want_in_16_bits(float a, float b)
{
    const float sum = fabsf(a + b);
    return (sum > 3 ? 3 : sum < 1 ? 1 : sum) * 2 - 1 + 6 + 12;
}
KERNEL(numbers_of_16_bits)
{
    HERE_IS;
    y[t] = in_16_bits<__half>(x, __floats2half2_rn(2, 3)) + in_16_bits<__nv_bfloat16>(x, __floats2bfloat162_rn(2, 3));
}
RUN(numbers_of_16_bits, 64, 1, 2 * want_in_16_bits(x[63 - i], x[i]))

/* a b + c, where rounding to fp32 on the way would give 2.95703125. */
KERNEL(rounded_once)
{
    HERE_IS;
    const __half a = 1.1806640625f, b = 0.0024814605712890625f, c = 2.955078125f;
    y[t] = t < 32 ? (float)__hfma(a, b, c) : -(float)__hfma(-a, b, -c);
}
RUN(rounded_once, 64, 1, 2.958984375f)

struct body { float3 at; short cell; char kind; };
KERNEL(structures)
{
    HERE_IS;
    __shared__ body s[THREADS];
    s[t] = { make_float3(x[t], 2, 3), (short)t, (char)(t % 2) };
    __syncthreads();
    const body &other = s[63 - t];
    const uchar4 bytes = make_uchar4((unsigned char)other.kind, 1, 2, 3);
    y[t] = other.at.x * other.at.y + other.at.z + other.cell + bytes.x + max(t, 5u) + (float)min(2.5, 3.0f);
}
RUN(structures, 64, 1, x[63 - i] * 2 + 3 + (float)(63 - i) + (float)((63 - i) % 2) + (float)(i > 5 ? i : 5) + 2.5f)

__constant__ float weights[3];
KERNEL(constants)
{
    HERE_IS;
    y[t] = x[t] * weights[t % 3] + (float)__byte_perm(0x03020100u, 0x07060504u, 0x7610u >> 4 * (t % 2));
}
static int run_constants()
{
    const float give[4] = { 0, 1, 2, 3 };
    float got[THREADS], take[3], want[THREADS];
    ramp in(THREADS);
    float *out;
    cudaMalloc(&out, sizeof got);
    cudaMemcpyToSymbol(weights, give + 1, sizeof weights);
    const bool refused = cudaMemcpyToSymbol(weights, give, sizeof give) != cudaSuccess;
    LAUNCH(constants, 1, THREADS, 0, out, in.data);
    cudaMemcpyFromSymbol(take, weights, 2 * sizeof(float), sizeof(float));
    cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
    cudaFree(out);
    for (int i = 0; i < THREADS; i++)
        want[i] = in.host[i] * (float)(i % 3 + 1) + (float)(i % 2 ? 0x00070601 : 0x07060100);
    return differ(got, want, THREADS) || !refused || take[0] != 2 || take[1] != 3;
}

/* Arguments are computed by the host, once; NULL is a pointer; a kernel's type may follow from them. */
template <typename T> __global__ void all_the_same(T *y, const float *none, T value)
{
    y[threadIdx.x] = none == nullptr ? value : 0;
}
static int run_arguments_are_computed_once()
{
    int calls = 0;
    numbers<float> out(THREADS);
    float got[THREADS], want[THREADS];
    const auto call = [&calls] { return (float)++calls; };
    for (float &w : want) w = 1;
    LAUNCH(all_the_same<float>, 1, THREADS, 0, out.data, NULL, call());
    out.get(got);
    const bool wrong = differ(got, want, THREADS);
    const float *none = nullptr;
    LAUNCH(all_the_same, 1, THREADS, 0, out.data, none, call() - 1);
    out.get(got);
    return wrong || differ(got, want, THREADS) || calls != 2;
}

/* A thread's place follows from the block's shape, not from its number of threads. */
__global__ void places(float *y)
{
    const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    y[t] = (float)(threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z);
}
static int run_blocks_of_many_shapes()
{
    static const unsigned shape[][3] = { { 2, 3, 4 }, { 3, 2, 4 }, { 4, 3, 2 }, { 24, 1, 1 }, { 1, 24, 1 }, { 1, 4, 6 } };
    numbers<float> out(24);
    float got[24], want[24];
    int wrong = 0;
    for (const unsigned *n : shape) {
        for (unsigned t = 0; t < 24; t++) want[t] = (float)(t % n[0] + 100 * (t / n[0] % n[1]) + 10000 * (t / n[0] / n[1]));
        LAUNCH(places, 1, dim3(n[0], n[1], n[2]), 0, out.data);
        out.get(got);
        wrong += differ(got, want, 24);
    }
    return wrong;
}

extern const struct judged right_kernels[];     /* faulty.cu */

const struct judged tricky_kernels[] = {
    { "syncwarp tree", NULL, run_syncwarp_tree },
    { "two buffers", NULL, run_two_buffers },
    { "half warps", NULL, run_half_warps },
    { "leaves after the last barrier", NULL, run_leaves_after_the_last_barrier },
    { "own slots need no barrier", NULL, run_own_slots_need_no_barrier },
    { "neighbouring halves", NULL, run_neighbouring_halves },
    { "neighbouring bytes", NULL, run_neighbouring_bytes },
    { "warps in their own parts", NULL, run_warps_in_their_own_parts },
    { "counts by barrier", NULL, run_counts_by_barrier },
    { "a shared counter", NULL, run_a_shared_counter },
    { "blocks count together", NULL, run_blocks_count_together },
    { "broadcast", NULL, run_broadcast },
    { "votes choose a mask", NULL, run_votes_choose_a_mask },
    { "vectors", NULL, run_vectors },
    { "a message by fence and atomic", NULL, run_a_message_by_fence_and_atomic },
    { "the same barrier in a loop", NULL, run_the_same_barrier_in_a_loop },
    { "floats added by comparing", NULL, run_floats_added_by_comparing },
    { "numbers of 16 bits", NULL, run_numbers_of_16_bits },
    { "rounded once", NULL, run_rounded_once },
    { "structures", NULL, run_structures },
    { "padded structs", NULL, run_padded_structs },
    { "constants", NULL, run_constants },
    { "arguments are computed once", NULL, run_arguments_are_computed_once },
    { "blocks of many shapes", NULL, run_blocks_of_many_shapes },
    { NULL, NULL, NULL },
};
