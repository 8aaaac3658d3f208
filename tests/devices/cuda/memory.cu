/* Kernels with one mistake about memory each: bounds, alignment, what nobody has written, who writes where; and right ones. */
#include "tests/devices/cuda/judged.cuh"

/* ---- variables of the file --------------------------------------------------------------------------------------- */

__device__ float table[64], others[64];
__constant__ float four[4];

WRONG(behind_a_variable, 1, 64, "4 bytes behind variable table of 256 bytes") { PLACES; table[t + 1] = x[t]; /* HERE */ }
WRONG(before_a_variable, 1, 64, "4 bytes before variable") { PLACES; y[t] = t > 0 ? others[t - 1] : others[t - 1]; /* HERE */ }
WRONG(behind_the_constants, 1, 5, "behind variable four of 16 bytes") { PLACES; y[t] = four[t]; /* HERE */ }
RIGHT(variables_in_bounds, 1, 64, i < 64 ? 2 * v[i] : 0)
{
    PLACES;
    table[t] = x[t], others[t] = 2 * x[63 - t];
    __syncthreads();
    y[t] = others[63 - t] + four[t % 4];
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

WRONG(behind_the_first_array, 1, 32, "shared array first has 128 bytes, and this is byte 128")
{
    PLACES;
    __shared__ float first[32], second[32];
    first[t + 1] = x[t];                                        /* HERE */
    second[t] = x[t];
    y[t] = second[t] + first[t];
}
WRONG(before_the_tile, 1, 32, "shared array tile has 128 bytes, and this is 4 bytes before it")
{
    PLACES;
    __shared__ float other[32], tile[32];
    other[t] = 0, tile[t] = x[t];
    __syncthreads();
    y[t] = tile[t - 1] + other[t];                              /* HERE */
}
WRONG(more_dynamic_memory_than_none, 1, 32, "shared array dynamic_shared has 0 bytes")
{
    PLACES;
    DYNAMIC_SHARED(float, s);
    s[t] = x[t];                                                /* HERE */
}
WRONG(an_index_that_overflows, 1, 4, "an index far too large or below 0") { PLACES; y[t] = x[(long long)(int)(t * 0x40000000u)]; /* HERE */ }
WRONG(a_null_pointer, 1, 1, "a null pointer") { PLACES; const float *none = (const float *)(n[0] * 4ull); y[t] = none[1]; /* HERE */ }
WRONG(a_row_of_bytes_not_of_numbers, 2, 1, "behind memory of 1024 bytes") { PLACES; y[b * ROOM * sizeof *y / 4 + 1] = 1; /* HERE */ }
WRONG(memcpy_of_a_number_too_many, 1, 1, "out of bounds")
{
    PLACES;
    __shared__ float s[8];
    memcpy(s, x, (n[0] + 9) * sizeof *s);                       /* HERE */
}
WRONG(memset_behind_the_array, 1, 1, "out of bounds")
{
    PLACES;
    __shared__ float s[8];
    memset(s + 4, 0, (n[0] + 8) * sizeof *s);                   /* HERE */
    y[0] = s[4];
}
WRONG(a_vector_over_the_end, 1, 64, "out of bounds") { PLACES; ((float4 *)y)[t + 1] = make_float4(0, 0, 0, 0); /* HERE */ }

/* ---- alignment --------------------------------------------------------------------------------------------------- */

WRONG(a_vector_in_a_row_of_odd_length, 1, 1, "is not a multiple of 16")
{
    PLACES;
    __shared__ __align__(16) float s[2][7];
    *(float4 *)s[1] = make_float4(1, 2, 3, 4);                  /* HERE */
    y[0] = s[1][2];
}
WRONG(a_double_behind_one_float, 1, 1, "is not a multiple of 8") { PLACES; *(double *)(y + 1) = 1; /* HERE */ }
WRONG(an_atomic_behind_one_int, 1, 1, "is not a multiple of 8") { PLACES; atomicAdd((unsigned long long *)(n + 1), 1ull); /* HERE */ }
WRONG(a_pair_of_halves_at_an_odd_one, 1, 1, "is not a multiple of 4")
{
    PLACES;
    __shared__ __half s[4];
    s[1] = 1, s[2] = 2;
    const __half2 two = *(const __half2 *)(s + 1);              /* HERE */
    y[0] = __low2float(two);
}
WRONG(ldg_of_a_vector_at_a_float, 1, 1, "is not a multiple of 16") { PLACES; y[0] = __ldg((const float4 *)(x + 2)).x; /* HERE */ }

/* ---- what nobody has written ------------------------------------------------------------------------------------- */

WRONG(halo_not_loaded, 1, 64, "not written")
{
    PLACES;
    __shared__ float s[66];
    s[t + 1] = x[t];
    __syncthreads();
    y[t] = s[t] + s[t + 2];                                     /* HERE */
}
WRONG(tree_of_96, 1, 96, "not written")
{
    PLACES;
    __shared__ float s[128];
    s[t] = x[t];
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) s[t] += s[t + half];                      /* HERE */
    }
    if (t == 0) y[0] = s[0];
}
WRONG(one_of_a_vector, 1, 16, "not written")
{
    PLACES;
    __shared__ __align__(16) float s[64];
    if (t < 15) ((float4 *)s)[t] = ((const float4 *)x)[t];
    else for (int i = 60; i < 63; i++) s[i] = x[i];
    __syncthreads();
    const float4 v4 = ((const float4 *)s)[t];                 /* HERE */
    y[t] = v4.x + v4.y + v4.z + v4.w;
}
struct counted { int key, count; };
WRONG(a_member_of_a_struct, 1, 32, "not written")
{
    PLACES;
    __shared__ counted s[32];
    s[t].key = t;
    __syncthreads();
    s[t].count += s[31 - t].key;                                /* HERE */
}
WRONG(bins_of_other_warps, 1, 64, "not written")
{
    PLACES;
    __shared__ unsigned bins[2][16];
    if (t < 16) bins[0][t] = 0;
    __syncthreads();
    atomicAdd(&bins[t / 32][t % 16], 1u);                       /* HERE */
}

/* Memory that begins unwritten, and what the host gets of it. */
template <typename T> static int run_with(void (*kernel)(T *, const float *, int), int count, int n)
{
    ramp x(ROOM);
    numbers<T> y(count);
    T got[ROOM];
    LAUNCH(kernel, dim3(1), dim3(64), 0, y.data, x.data, n);
    y.get(got);
    return 0;
}
static __global__ void in_pairs(float *y, const float *x, int n)
{
    const int t = threadIdx.x;
    if (2 * t + 1 < n - 1) ((float2 *)y)[t] = make_float2(x[2 * t], x[2 * t + 1]);
    else if (2 * t < n) y[2 * t] = x[2 * t];                    /* and the second of the last pair? */
}
static int run_the_last_of_a_pair() { return run_with<float>(in_pairs, 62, 62); }
static __global__ void pairs(uint2 *y, const float *, int n)
{
    const unsigned t = threadIdx.x;
    if ((int)t < n - 1) y[t] = make_uint2(t, t);
    else if ((int)t == n - 1) y[t].x = t;
}
static int run_half_of_a_pair() { return run_with<uint2>(pairs, 31, 31); }
static __global__ void in_fours(float *y, const float *x, int n)
{
    const int t = threadIdx.x;
    if (t < n / 4) ((float4 *)y)[t] = ((const float4 *)x)[t];   /* and the rest? */
}
static int run_the_rest_of_the_vectors() { return run_with<float>(in_fours, 103, 103); }
static __global__ void halves_in_pairs(__half *y, const float *x, int n)
{
    const int t = threadIdx.x;
    if (2 * t + 1 < n) ((__half2 *)y)[t] = __floats2half2_rn(x[2 * t], x[2 * t + 1]);
    else if (2 * t < n) y[2 * t] = __float2half_rn(x[2 * t]);
}
static __global__ void sums_of_pairs(float *y, const __half *x)
{
    const __half2 two = ((const __half2 *)x)[threadIdx.x];
    y[threadIdx.x] = __low2float(two) + __high2float(two);
}
static int run_the_last_half()
{
    ramp x(64);
    numbers<__half> h(64);
    numbers<float> y(32);
    LAUNCH(halves_in_pairs, dim3(1), dim3(32), 0, h.data, x.data, 63);
    LAUNCH(sums_of_pairs, dim3(1), dim3(32), 0, y.data, h.data);
    return 0;
}
static int run_bytes_are_set_not_numbers()
{
    ramp x(64);
    numbers<float> y(64);
    float got[64];
    cudaMemset(y.data, 0, 64);                                  /* of 256 */
    LAUNCH(in_fours, dim3(1), dim3(4), 0, y.data, x.data, 8);
    y.get(got);
    return 0;
}

/* ---- who writes where -------------------------------------------------------------------------------------------- */

WRONG(step_of_blocks, 2, 64, "race") { PLACES; for (int i = b * 64 + t; i < 200; i += 2) y[i] = x[i] + 1; /* HERE */ }
WRONG(in_place_stencil, 1, 64, "race")
{
    PLACES;
    z[t] = x[t];
    __syncthreads();
    if (t > 0 && t < 63) z[t] = z[t - 1] + z[t + 1];            /* HERE */
}
WRONG(partial_sums_without_barrier, 1, 128, "shared array part")
{
    PLACES;
    __shared__ float part[4];
    float sum = x[t];
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (lane == 0) part[t / 32] = sum;                          /* HERE */
    if (t == 0) y[0] = part[0] + part[1] + part[2] + part[3];   /* HERE */
}
WRONG(syncwarp_for_a_block, 1, 64, "race")
{
    PLACES;
    __shared__ float s[64];
    s[t] = x[t];                                                /* HERE */
    __syncwarp();
    y[t] = s[63 - t];                                           /* HERE */
}
WRONG(lane_zero_leaves_a_number, 1, 64, "race")
{
    PLACES;
    __shared__ float s[2];
    if (lane == 0) s[t / 32] = x[t];                            /* HERE */
    y[t] = s[t / 32];                                           /* HERE */
}
WRONG(next_tile_over_this_one, 1, 64, "race")
{
    PLACES;
    __shared__ float tile[64];
    float sum = 0;
    tile[t] = x[t];
    for (int k = 1; k < 3; k++) {
        __syncthreads();
        sum += tile[63 - t];                                    /* HERE */
        tile[t] = x[k * 64 + t];                                /* HERE */
    }
    y[t] = sum;
}
WRONG(lock_without_fence, 4, 1, "race")
{
    PLACES;
    while (atomicCAS(n, 0u, 1u) != 0) continue;
    y[0] += x[b];                                               /* HERE */
    atomicExch(n, 0u);
}
RIGHT(lock_with_fences, 4, 1, i == 0 ? v[0] + v[1] + v[2] + v[3] : 0)
{
    PLACES;
    while (atomicCAS(n, 0u, 1u) != 0) continue;
    __threadfence();
    y[0] += x[b];
    __threadfence();
    atomicExch(n, 0u);
}
WRONG(a_byte_beside_an_atomic, 1, 2, "race")
{
    PLACES;
    if (t == 0) atomicAdd(n, 1u);                               /* HERE */
    else ((unsigned char *)n)[3] = 1;                           /* HERE */
}
WRONG(a_slot_reserved_and_read, 1, 64, "race")
{
    PLACES;
    const unsigned at = atomicAdd(n, 1u);
    z[at] = x[t];                                               /* HERE */
    if (at > 0) y[t] = z[at - 1];                               /* HERE */
}
WRONG(the_last_thread_clears, 1, 64, "race")
{
    PLACES;
    __shared__ int sum;
    if (t == 63) sum = 0;                                       /* HERE */
    atomicAdd(&sum, t);                                         /* HERE */
}
WRONG(lanes_leave_a_loop, 1, 32, "a lane that does not give one")
{
    PLACES;
    float sum = 0;
    for (int i = 0; i < t; i++) sum += __shfl_up_sync(0xffffffffu, x[i], 1);  /* HERE */
    y[t] = sum;
}
WRONG(a_mask_of_those_that_happen_to_run, 1, 32, "different functions|no thread can|a lane that does not give one")
{
    PLACES;
    y[t] = __shfl_xor_sync(__activemask(), x[t], 1);            /* HERE */
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

template <int MOST> __global__ void __launch_bounds__(2 * MOST, 1) bounded(float *y, const float *x) { y[threadIdx.x] = x[threadIdx.x]; }
template <int THREADS> static int run_bounded()
{
    ramp x(ROOM);
    numbers<float> y(ROOM);
    float got[ROOM];
    LAUNCH(bounded<64>, dim3(1), dim3(THREADS), 0, y.data, x.data);
    if (THREADS <= 128) cudaMemcpy(got, y.data, THREADS * sizeof *got, cudaMemcpyDeviceToHost);
    return 0;
}

/* An argument that owns memory is converted by the host, once, and not copied. */
static int conversions;
struct owner {
    float *data;
    explicit owner(float *d) : data(d) { }
    owner(const owner &) = delete;
    operator float *() const { return conversions++, data; }
};
static int run_an_argument_that_owns()
{
    ramp x(ROOM);
    numbers<float> y(ROOM);
    const owner of_y(y.data), of_x(x.data);
    float got[128];
    conversions = 0;
    LAUNCH(bounded<64>, dim3(1), dim3(128), 0, of_y, of_x);
    cudaMemcpy(got, y.data, sizeof got, cudaMemcpyDeviceToHost);
    return differ(got, x.host, 128) || conversions != 2;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* fminf and fmaxf leave a NaN out, and so do min and max of floats: crt/math_functions.hpp of CUDA. */
RIGHT(without_nan, 1, 1, i < 8 ? i % 2 + 1 : i == 8)
{
    PLACES;
    const float none = sqrtf(-1 - (float)n[0]);
    const double none64 = none;
    y[0] = max(none, 1.0f), y[1] = max(2.0f, none), y[2] = min(none, 1.0f), y[3] = min(2.0f, none);
    y[4] = (float)max(none64, 1.0), y[5] = (float)max(2.0, none64), y[6] = (float)min(1.0, none64), y[7] = (float)min(none64, 2.0);
    y[8] = max(none, none) != max(none, none);
}

const struct judged memory_kernels[] = {
    behind_a_variable_, before_a_variable_, behind_the_constants_, variables_in_bounds_,
    behind_the_first_array_, before_the_tile_, more_dynamic_memory_than_none_, an_index_that_overflows_, a_null_pointer_,
    a_row_of_bytes_not_of_numbers_, memcpy_of_a_number_too_many_, memset_behind_the_array_, a_vector_over_the_end_,
    a_vector_in_a_row_of_odd_length_, a_double_behind_one_float_, an_atomic_behind_one_int_, a_pair_of_halves_at_an_odd_one_,
    ldg_of_a_vector_at_a_float_, halo_not_loaded_, tree_of_96_, one_of_a_vector_, a_member_of_a_struct_, bins_of_other_warps_,
    step_of_blocks_, in_place_stencil_, partial_sums_without_barrier_, syncwarp_for_a_block_, lane_zero_leaves_a_number_,
    next_tile_over_this_one_, lock_without_fence_, lock_with_fences_, a_byte_beside_an_atomic_, a_slot_reserved_and_read_,
    the_last_thread_clears_, lanes_leave_a_loop_, a_mask_of_those_that_happen_to_run_, without_nan_,
    { "the_last_of_a_pair", "takes 4 bytes that nobody has written, first byte 244 of 248", run_the_last_of_a_pair },
    { "half_of_a_pair", "takes 4 bytes that nobody has written, first byte 244 of 248", run_half_of_a_pair },
    { "the_rest_of_the_vectors", "takes 12 bytes that nobody has written, first byte 400 of 412", run_the_rest_of_the_vectors },
    { "the_last_half", "not written", run_the_last_half },
    { "bytes_are_set_not_numbers", "takes 192 bytes that nobody has written, first byte 64 of 256", run_bytes_are_set_not_numbers },
    { "more_threads_than_launch_bounds", "its blocks have 160 threads, and its __launch_bounds__ allow 128", run_bounded<160> },
    { "as_many_threads_as_launch_bounds", NULL, run_bounded<128> },
    { "an_argument_that_owns", NULL, run_an_argument_that_owns },
    { NULL, NULL, NULL },
};
