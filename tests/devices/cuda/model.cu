/* The sentences of docs/authors/memory_model.md: for each a kernel that is right by it, and one that is wrong by it. */
#include "tests/devices/cuda/judged.cuh"

/* ---- one thread, one launch -------------------------------------------------------------------------------------- */

RIGHT(own_slot, 1, 64, i < 64 ? v[i] + 1 : 0) { PLACES; __shared__ float s[64]; s[t] = x[t]; s[t] += 1; y[t] = s[t]; }
WRONG(slot_of_another, 1, 64, "race")
{
    PLACES;
    __shared__ float s[64];
    s[t] = x[t];                                                /* HERE */
    y[t] = s[t ^ 1];                                            /* HERE */
}

static __global__ void fills(float *z, const float *x) { z[threadIdx.x] = x[threadIdx.x]; }
static __global__ void mirrors(float *y, const float *z) { y[threadIdx.x] = z[63 - threadIdx.x]; }
static int run_two_launches(void)
{
    alone a;
    LAUNCH(fills, dim3(1), dim3(64), 0, a.z.data, a.x.data);
    LAUNCH(mirrors, dim3(1), dim3(64), 0, a.y.data, a.z.data);
    a.y.get(a.got);
    return a.got[0] != a.x.host[63];
}
static constexpr judged two_launches_ = { "two_launches", NULL, run_two_launches };
WRONG(one_launch, 2, 64, "race")
{
    PLACES;
    if (b == 0) z[t] = x[t];                                    /* HERE */
    else y[t] = z[63 - t];                                      /* HERE */
}

RIGHT(blocks_of_their_own, 4, 16, i < 64 ? 2 * v[i] : 0) { PLACES; y[b * 16 + t] = 2 * x[b * 16 + t]; }
WRONG(last_number_adds, 4, 32, "race")
{
    PLACES;
    if (t == 0) z[b] = x[b];                                    /* HERE */
    __syncthreads();
    if (b == 3 && t == 0) y[0] = z[0] + z[1] + z[2] + z[3];     /* HERE */
}

RIGHT(bytes_side_by_side, 1, 64, i < 64 ? 63 - i : 0)
{
    PLACES;
    __shared__ unsigned char s[64];
    s[t] = (unsigned char)t;
    __syncthreads();
    y[t] = s[63 - t];
}
WRONG(bytes_that_overlap, 1, 64, "race")
{
    PLACES;
    __shared__ unsigned short s[32];
    ((unsigned char *)s)[t] = (unsigned char)t;                 /* HERE */
    __syncwarp();
    if (t < 32) y[t] = s[31 - t];                               /* HERE */
}

RIGHT(one_says_so, 1, 64, i == 0)
{
    PLACES;
    __shared__ int found;
    if (t == 0) found = 0;
    __syncthreads();
    if (t == 5) found = 1;
    __syncthreads();
    if (t == 0) y[0] = (float)found;
}
WRONG(all_say_the_same, 1, 64, "a write by block (0,0,0) thread")
{
    PLACES;
    __shared__ int found;
    found = 1;                                                  /* HERE */
    __syncthreads();
    if (t == 0) y[0] = (float)found;
}

RIGHT(volatile_of_its_own, 1, 64, i < 64 ? v[i] : 0) { PLACES; volatile float *s = z + t; *s = x[t]; y[t] = *s; }
WRONG(volatile_flag, 2, 1, "race")
{
    PLACES;
    volatile unsigned *flag = n;
    if (b == 0) *flag = 1;                                      /* HERE */
    else y[0] = (float)*flag;                                   /* HERE */
}

/* ---- barriers of the block --------------------------------------------------------------------------------------- */

RIGHT(global_by_barrier, 2, 64, i < 128 ? v[i ^ 63] : 0)
{
    PLACES;
    z[b * 64 + t] = x[b * 64 + t];
    __syncthreads();
    y[b * 64 + t] = z[b * 64 + 63 - t];
}
WRONG(barrier_of_another_block, 2, 64, "race")
{
    PLACES;
    z[b * 64 + t] = x[b * 64 + t];                              /* HERE */
    __syncthreads();
    y[b * 64 + t] = z[64 - b * 64 + t];                         /* HERE */
}

RIGHT(warps_leave_early, 1, 128, i < 64 ? v[63 - i] : 0)
{
    PLACES;
    __shared__ float s[64];
    if (t >= 64) return;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[63 - t];
}
WRONG(barriers_at_two_places, 1, 64, "divergent barrier")
{
    PLACES;
    if (t < 32) __syncthreads();                                /* HERE */
    else __syncthreads();                                       /* HERE */
}

RIGHT(leaves_behind_the_barrier, 1, 64, i < 32 ? v[i + 32] : 0)
{
    PLACES;
    __shared__ float s[64];
    s[t] = x[t];
    __syncthreads();
    if (t >= 32) return;
    __syncthreads();
    y[t] = s[t + 32];
}
WRONG(leaves_after_writing, 1, 64, "the latter thread ended before a barrier of its block")
{
    PLACES;
    __shared__ float s[64];
    s[t] = x[t];                                                /* HERE */
    if (t >= 32) return;
    __syncthreads();
    y[t] = s[t + 32];                                           /* HERE */
}

/* ---- warps ------------------------------------------------------------------------------------------------------- */

RIGHT(lanes_of_one_mask, 1, 32, i < 32 ? v[i ^ 1] : 0)
{
    PLACES;
    __shared__ float s[32];
    s[t] = x[t];
    __syncwarp(3u << (t & ~1));
    y[t] = s[t ^ 1];
}
WRONG(lanes_of_two_masks, 1, 32, "race")
{
    PLACES;
    __shared__ float s[32];
    s[t] = x[t];                                                /* HERE */
    __syncwarp(3u << (t & ~1));
    y[t] = s[t ^ 2];                                            /* HERE */
}

RIGHT(a_shuffle_carries, 1, 32, i < 32 ? v[i ^ 1] : 0) { PLACES; y[t] = __shfl_xor_sync(0xffffffffu, x[t], 1); }
WRONG(a_shuffle_orders, 1, 32, "race")
{
    PLACES;
    __shared__ float s[32];
    s[t] = x[t];                                                /* HERE */
    const int from = __shfl_xor_sync(0xffffffffu, t, 1);
    y[t] = s[from];                                             /* HERE */
}

RIGHT(a_vote_without_ended_lanes, 1, 32, i < 16 ? 16 : 0)
{
    PLACES;
    if (t >= 16) return;
    y[t] = (float)__popc(__ballot_sync(0xffffffffu, 1));
}
WRONG(a_number_of_an_ended_lane, 1, 32, "a lane that does not give one")
{
    PLACES;
    if (t >= 16) return;
    y[t] = __shfl_down_sync(0xffffffffu, x[t], 8);              /* HERE */
}

RIGHT(a_mask_with_itself, 1, 32, i < 16 ? 1 : 0) { PLACES; if (t < 16) y[t] = (float)__all_sync(0xffffu, t < 16); }
WRONG(a_mask_without_itself, 1, 32, "a lane names a mask without itself")
{
    PLACES;
    if (t < 16) y[t] = (float)__all_sync(0xfffeu, t < 16);      /* HERE */
}

/* ---- atomics ----------------------------------------------------------------------------------------------------- */

RIGHT(atomics_of_one_size, 4, 32, i < 32) { PLACES; if (atomicAdd(n, 1u) % 4 == 0) y[atomicAdd(n + 1, 1u)] = 1; }
WRONG(atomics_of_two_sizes, 1, 2, "an atomic of 8 bytes by|an atomic of 4 bytes by")
{
    PLACES;
    if (t == 0) atomicAdd((unsigned long long *)n, 1ull);       /* HERE */
    else atomicAdd(n, 1u);                                      /* HERE */
}

RIGHT(read_by_an_atomic, 2, 1, 0) { PLACES; if (b == 0) atomicAdd(n, 1u); else z[0] = (float)atomicAdd(n, 0u); }
WRONG(read_beside_atomics, 2, 1, "race")
{
    PLACES;
    if (b == 0) atomicAdd(n, 1u);                               /* HERE */
    else y[0] = (float)*n;                                      /* HERE */
}

RIGHT(a_guess_that_is_compared, 4, 32, i == 0 ? 128 : 0)
{
    PLACES;
    int *p = (int *)y, old = *p, seen;
    do seen = old, old = atomicCAS(p, seen, __float_as_int(1 + __int_as_float(seen)));
    while (old != seen);
}
WRONG(a_guess_that_is_stored, 4, 32, "race")
{
    PLACES;
    const unsigned old = *n;                                    /* HERE */
    y[b * 32 + t] = (float)old;
    atomicCAS(n, old, old + 1);                                 /* HERE */
    y[b * 32 + t] += (float)*n;                                 /* HERE */
}

RIGHT(a_block_atomic_in_its_block, 2, 64, i < 2 ? 64 : 0)
{
    PLACES;
    __shared__ unsigned count;
    if (t == 0) count = 0;
    __syncthreads();
    atomicAdd_block(&count, 1u);
    __syncthreads();
    if (t == 0) y[b] = (float)count;
}
WRONG(a_block_atomic_for_others, 2, 64, "an atomic of a block is none for other blocks") { PLACES; atomicAdd_block(n, 1u); /* HERE */ }

/* ---- fences ------------------------------------------------------------------------------------------------------ */

static __device__ void wait_for(unsigned *word, unsigned count)
{
    while (atomicAdd(word, 0u) < count) continue;
}

RIGHT(fence_and_atomic, 2, 1, i == 1 ? v[0] : 0)
{
    PLACES;
    if (b == 0) z[0] = x[0], __threadfence(), atomicExch(n, 1u);
    else wait_for(n, 1), y[1] = z[0];
}
WRONG(atomic_without_fence, 2, 1, "race")
{
    PLACES;
    if (b == 0) z[0] = x[0], atomicExch(n, 1u);                 /* HERE */
    else if (atomicAdd(n, 0u) == 1) y[1] = z[0];                /* HERE */
}

RIGHT(no_fence_where_it_is_read, 3, 32, i == 0 ? v[0] + v[1] + v[2] : 0)
{
    PLACES;
    if (t > 0) return;
    z[b] = x[b];
    __threadfence();
    if (atomicAdd(n, 1u) == 2) y[0] = z[0] + z[1] + z[2];
}
WRONG(no_atomic_where_it_is_read, 2, 1, "race")
{
    PLACES;
    if (b == 0) z[0] = x[0], __threadfence(), atomicExch(n, 1u);  /* HERE */
    else if (*n == 1) __threadfence(), y[1] = z[0];             /* HERE */
}

RIGHT(a_write_between, 2, 1, i == 1 ? v[0] : 0)
{
    PLACES;
    __shared__ float spare;
    if (b == 0) z[0] = x[0], __threadfence(), spare = 1, y[0] = spare - 1, atomicExch(n, 1u);
    else wait_for(n, 1), y[1] = z[0];
}
WRONG(a_write_behind_the_fence, 2, 1, "race")
{
    PLACES;
    if (b == 0) __threadfence(), z[0] = x[0], atomicExch(n, 1u);  /* HERE */
    else if (atomicAdd(n, 0u) == 1) y[1] = z[0];                /* HERE */
}

RIGHT(a_chain_of_three, 3, 1, i == 2 ? v[0] : 0)
{
    PLACES;
    if (b == 0) z[0] = x[0], __threadfence(), atomicExch(n, 1u);
    else if (b == 1) wait_for(n, 1), __threadfence(), atomicExch(n + 1, 1u);
    else wait_for(n + 1, 1), y[2] = z[0];
}
WRONG(a_chain_with_a_gap, 3, 1, "race")
{
    PLACES;
    if (b == 0) z[0] = x[0], __threadfence(), atomicExch(n, 1u);  /* HERE */
    else if (b == 1) {
        __threadfence();                                        /* before it has seen anything */
        if (atomicAdd(n, 0u) == 1) atomicExch(n + 1, 1u);
    } else if (atomicAdd(n + 1, 0u) == 1) y[2] = z[0];          /* HERE */
}

RIGHT(barrier_then_fence, 2, 64, i < 64 ? v[i] : 0)
{
    PLACES;
    __shared__ bool last;
    z[b * 64 + t] = b == 0 ? x[t] : 0;
    __syncthreads();
    if (t == 0) __threadfence(), last = atomicAdd(n, 1u) == 1;
    __syncthreads();
    if (last) y[t] = z[t] + z[64 + t];
}
WRONG(fence_then_barrier, 2, 64, "race")
{
    PLACES;
    __shared__ bool last;
    z[b * 64 + t] = x[t];                                       /* HERE */
    if (t == 0) __threadfence();                                /* the others' numbers are behind no fence */
    __syncthreads();
    if (t == 0) last = atomicAdd(n, 1u) == 1;
    __syncthreads();
    if (last) y[t] = z[t] + z[64 + t];                          /* HERE */
}

RIGHT(all_fence_then_barrier, 2, 64, i < 64 ? 2 * v[i] : 0)
{
    PLACES;
    __shared__ bool last;
    z[b * 64 + t] = x[t];
    __threadfence();
    __syncthreads();
    if (t == 0) last = atomicAdd(n, 1u) == 1;
    __syncthreads();
    if (last) y[t] = z[t] + z[64 + t];
}
WRONG(all_fence_without_barrier, 2, 64, "race")
{
    PLACES;
    __shared__ bool last;
    z[b * 64 + t] = x[t];                                       /* HERE */
    __threadfence();
    if (t == 0) last = atomicAdd(n, 1u) == 1;                   /* before the others may have come so far */
    __syncthreads();
    if (last) y[t] = z[t] + z[64 + t];                          /* HERE */
}

RIGHT(a_block_fence_in_its_block, 1, 64, i == 0 ? v[0] : 0)
{
    PLACES;
    __shared__ float s;
    __shared__ unsigned flag;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) s = x[0], __threadfence_block(), atomicExch(&flag, 1u);
    else if (t == 32 && atomicAdd(&flag, 0u) == 1) y[1] = s - s;
    __syncthreads();
    if (t == 0) y[0] = s;
}
WRONG(a_block_fence_for_others, 4, 32, "race")
{
    PLACES;
    if (t > 0) return;
    z[b] = x[b];                                                /* HERE */
    __threadfence_block();
    if (atomicAdd(n, 1u) == 3) y[0] = z[0] + z[1] + z[2] + z[3];  /* HERE */
}

RIGHT(a_block_fence_and_then_a_wide_one, 2, 64, i == 0 ? v[0] : 0)
{
    PLACES;
    if (b == 0 && t == 0) z[0] = x[0], __threadfence_block(), atomicExch(n, 1u);
    __syncthreads();
    if (b == 0 && t == 32) wait_for(n, 1), __threadfence(), atomicExch(n + 1, 1u);
    if (b == 1 && t == 0) wait_for(n + 1, 1), y[0] = z[0];
}
WRONG(a_wide_fence_and_a_block_atomic, 2, 1, "race")
{
    PLACES;
    if (b == 0) z[0] = x[0], __threadfence(), atomicExch_block(n, 1u);  /* HERE */
    else if (atomicAdd(n, 0u) == 1) y[0] = z[0];                /* HERE */
}

/* ---- who must be ordered ----------------------------------------------------------------------------------------- */

RIGHT(all_readers_signal, 5, 1, i < 4 ? 0 : i == 4)
{
    PLACES;
    if (b < 4) z[b + 1] = z[0], __threadfence(), atomicAdd(n, 1u);
    else wait_for(n, 4), z[0] = 7, y[4] = 1;
}
WRONG(a_reader_forgets_to_signal, 5, 1, "block (1,0,0)")
{
    PLACES;
    if (b < 4) {
        y[b] = z[0];                                            /* HERE */
        __threadfence();
        if (b != 1) atomicAdd(n, 1u);
    } else if (atomicAdd(n, 0u) == 3) z[0] = 7;                 /* HERE */
}

RIGHT(all_atomics_signal, 5, 1, i == 4 ? 4 : 0)
{
    PLACES;
    if (b < 4) atomicAdd(n + 1, 1u), __threadfence(), atomicAdd(n, 1u);
    else wait_for(n, 4), y[4] = (float)n[1];
}
WRONG(an_atomic_forgets_to_signal, 5, 1, "an atomic by block (1,0,0)")
{
    PLACES;
    if (b < 4) {
        atomicAdd(n + 1, 1u);                                   /* HERE */
        __threadfence();
        if (b != 1) atomicAdd(n, 1u);
    } else if (atomicAdd(n, 0u) == 3) y[4] = (float)n[1];       /* HERE */
}

RIGHT(ldg_of_what_stays, 1, 64, i < 64 ? v[i] : 0) { PLACES; y[t] = __ldg(x + t); }
WRONG(ldg_of_what_changes, 1, 64, "read-only")
{
    PLACES;
    z[t] = x[t];                                                /* HERE */
    __syncthreads();
    y[t] = __ldg(z + 63 - t);                                   /* HERE */
}

/* ---- what has been written --------------------------------------------------------------------------------------- */

RIGHT(shared_memory_is_filled, 2, 32, i < 64 ? v[i] : 0) { PLACES; __shared__ float s[32]; s[t] = x[b * 32 + t]; y[b * 32 + t] = s[t]; }
WRONG(shared_memory_of_another_block, 2, 32, "not written")
{
    PLACES;
    __shared__ float s[32];
    if (b == 0) s[t] = x[t];
    y[b * 32 + t] = s[t];                                       /* HERE */
}

__device__ float begins_as_zeros[64];
RIGHT(a_variable_of_the_file, 1, 64, i < 64) { PLACES; y[t] = begins_as_zeros[t] + 1; }
static int run_memory_of_the_runtime(void)
{
    numbers<float> x(64), y(64);
    LAUNCH(mirrors, dim3(1), dim3(64), 0, y.data, x.data);      /* x: nobody has filled it */
    return 0;
}
static constexpr judged memory_of_the_runtime_ = { "memory_of_the_runtime", "not written", run_memory_of_the_runtime };

/* Behind the index are 4 bytes that are nobody's. */
struct valued { double value; int index; };
RIGHT(copies_with_padding, 1, 32, i < 16 ? v[i + 16] + i + 16 : 0)
{
    PLACES;
    __shared__ valued s[32];
    s[t].value = x[t], s[t].index = t;
    __syncthreads();
    if (t < 16) s[t] = s[t + 16], y[t] = (float)s[t].value + (float)s[t].index;
}
WRONG(copies_of_a_gap, 1, 16, "of what nobody has written")
{
    PLACES;
    __shared__ __align__(16) float s[64], r[64];
    if (t < 15) ((float4 *)s)[t] = ((const float4 *)x)[t];
    else s[60] = x[60], s[61] = x[61], s[62] = x[62];           /* and the last one? */
    __syncthreads();
    ((float4 *)r)[t] = ((const float4 *)s)[15 - t];
    __syncthreads();
    for (int i = 0; i < 4; i++) y[4 * t + i] = r[4 * t + i];    /* HERE */
}

const struct judged model_kernels[] = {
    own_slot_, slot_of_another_, two_launches_, one_launch_, blocks_of_their_own_, last_number_adds_, bytes_side_by_side_,
    bytes_that_overlap_, one_says_so_, all_say_the_same_, volatile_of_its_own_, volatile_flag_, global_by_barrier_,
    barrier_of_another_block_, warps_leave_early_, barriers_at_two_places_, leaves_behind_the_barrier_, leaves_after_writing_,
    lanes_of_one_mask_, lanes_of_two_masks_, a_shuffle_carries_, a_shuffle_orders_, a_vote_without_ended_lanes_,
    a_number_of_an_ended_lane_, a_mask_with_itself_, a_mask_without_itself_, atomics_of_one_size_, atomics_of_two_sizes_,
    read_by_an_atomic_, read_beside_atomics_, a_guess_that_is_compared_, a_guess_that_is_stored_, a_block_atomic_in_its_block_,
    a_block_atomic_for_others_, fence_and_atomic_, atomic_without_fence_, no_fence_where_it_is_read_, no_atomic_where_it_is_read_,
    a_write_between_, a_write_behind_the_fence_, a_chain_of_three_, a_chain_with_a_gap_, barrier_then_fence_, fence_then_barrier_,
    all_fence_then_barrier_, all_fence_without_barrier_, a_block_fence_in_its_block_, a_block_fence_for_others_,
    a_block_fence_and_then_a_wide_one_, a_wide_fence_and_a_block_atomic_, all_readers_signal_, a_reader_forgets_to_signal_,
    all_atomics_signal_, an_atomic_forgets_to_signal_, ldg_of_what_stays_, ldg_of_what_changes_, shared_memory_is_filled_,
    shared_memory_of_another_block_, a_variable_of_the_file_, memory_of_the_runtime_, copies_with_padding_, copies_of_a_gap_,
    { NULL, NULL, NULL },
};
