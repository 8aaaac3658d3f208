/* cuda_runtime.h -- the part of CUDA C++ that kernels here are written in, for g++ (C++17) on a CPU.
 *
 * A .cu file is compiled unchanged, as C++.  Only a launch differs from what CUDA's books write: LAUNCH(kernel, grid,
 * block, bytes, arguments) of cuda/launch.cuh is <<<grid, block, bytes>>> under nvcc.
 *
 *   __shared__       a variable of the processor's thread that runs the block: blocks have their own
 *   threads          plain calls, one after the other, until one waits for others; then it becomes a fiber (machine.h)
 *   __syncthreads    and the functions with a mask wait for whom they name; if nobody can go on, the program stops and
 *                    says which thread waits where
 *   warps            have 32 lanes
 *   atomics          are those of the processor; sums of floats are refused: their order is not fixed
 *   printf, assert   are those of C
 *
 * Not emulated, and an error of the compiler that names it: cooperative groups, inline PTX, wmma, textures, surfaces,
 * launches inside kernels, __nanosleep, clocks, streams, events, pinned and managed memory.  kernels/launch.cuh
 * includes this file for every kernel.
 */
#ifndef ORRERY_EMULATED_CUDA_RUNTIME_H
#define ORRERY_EMULATED_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>
#include "emulated_devices/device/cuda/emulated/machine.h"
#include "emulated_devices/device/cuda/emulated/device_functions.h"
#include <climits>
#include <cstdio>
#include <memory>               /* before __noinline__, which is another word there */

/* ---- words ------------------------------------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local
#define __align__(n) __attribute__((aligned(n)))
#ifndef EMULATED_BOUNDS         /* launch_bounds.awk makes a check of them */
#define __launch_bounds__(...)
#endif
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

/* ---- threads that wait for each other ---------------------------------------------------------------------------- */

/* WHERE: the line of the call, for reports. */
#define WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define HERE emulated::where{ file, line }

static inline void __syncthreads(WHERE) { emulated::sync_block(emulated::SYNC, 0, HERE); }
static inline int __syncthreads_count(int p, WHERE) { return emulated::sync_block(emulated::SYNC_COUNT, p != 0, HERE); }
static inline int __syncthreads_and(int p, WHERE) { return emulated::sync_block(emulated::SYNC_AND, p != 0, HERE); }
static inline int __syncthreads_or(int p, WHERE) { return emulated::sync_block(emulated::SYNC_OR, p != 0, HERE); }

static inline void __syncwarp(unsigned mask = 0xffffffffu, WHERE)
{
    emulated::with_warp({ emulated::WARP_SYNC, mask, 0, 0, 32, HERE });
}

namespace emulated {
/* The bits of a number that a lane gives and gets. */
template <typename T> static inline T exchange(enum with how, unsigned mask, T value, int argument, int width, where at)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a shuffle moves numbers of up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = with_warp({ how, mask, bits, argument, width, at });
    memcpy(&value, &bits, sizeof value);
    return value;
}
}

template <typename T> static inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32, WHERE)
{
    return emulated::exchange(emulated::SHUFFLE, mask, x, lane, width, HERE);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32, WHERE)
{
    return emulated::exchange(emulated::SHUFFLE_UP, mask, x, (int)by, width, HERE);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32, WHERE)
{
    return emulated::exchange(emulated::SHUFFLE_DOWN, mask, x, (int)by, width, HERE);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32, WHERE)
{
    return emulated::exchange(emulated::SHUFFLE_XOR, mask, x, with, width, HERE);
}
static inline unsigned __ballot_sync(unsigned mask, int p, WHERE)
{
    return (unsigned)emulated::with_warp({ emulated::BALLOT, mask, p != 0, 0, 32, HERE });
}
static inline int __all_sync(unsigned mask, int p, WHERE)
{
    return (int)emulated::with_warp({ emulated::VOTE_ALL, mask, p != 0, 0, 32, HERE });
}
static inline int __any_sync(unsigned mask, int p, WHERE)
{
    return (int)emulated::with_warp({ emulated::VOTE_ANY, mask, p != 0, 0, 32, HERE });
}
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T x, WHERE)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    return (unsigned)emulated::with_warp({ emulated::MATCH, mask, bits, 0, 32, HERE });
}
template <typename T> static inline unsigned __match_all_sync(unsigned mask, T x, int *all, WHERE)
{
    *all = __match_any_sync(mask, x, file, line) == mask;
    return *all ? mask : 0;
}
static inline unsigned __activemask() { return emulated::active_lanes(); }

static inline void __threadfence() { emulated::fence(emulated::IN_DEVICE); }
static inline void __threadfence_system() { emulated::fence(emulated::IN_DEVICE); }
static inline void __threadfence_block() { emulated::fence(emulated::IN_BLOCK); }

/* ---- atomics ----------------------------------------------------------------------------------------------------- */

/* The result of f(number at p) is stored there; the old number is returned.  The processor's own instruction is in
 * machine.cpp, which is not watched. */
namespace emulated {
template <typename T, typename F>
static inline T atomic(T *p, const void *pc, enum scope reach, F f, bool compares = false)
{
    static_assert(std::is_integral<T>::value, "atomics of floats add in no fixed order: they are not emulated");
    uint64_t bits = atomic_begins(p, sizeof *p, pc, reach, compares), next;
    T old, made;
    do {
        memcpy(&old, &bits, sizeof old);
        made = f(old), next = 0;
        memcpy(&next, &made, sizeof made);
    } while (!atomic_stores(p, sizeof *p, &bits, next));
    return old;
}
}
#define ATOMIC_IN(name, reach, result)                                                                                 \
    template <typename T> __attribute__((noinline)) static T name(T *p, typename std::common_type<T>::type x)          \
    {                                                                                                                  \
        return emulated::atomic(p, __builtin_return_address(0), emulated::reach, [=](T old) -> T { return result; });  \
    }
#define ATOMIC(name, result)                                                                                           \
    ATOMIC_IN(name, IN_DEVICE, result)                                                                                 \
    ATOMIC_IN(name##_system, IN_DEVICE, result)                                                                        \
    ATOMIC_IN(name##_block, IN_BLOCK, result)
ATOMIC(atomicAdd, (T)(old + x))
ATOMIC(atomicSub, (T)(old - x))
ATOMIC(atomicExch, ((void)old, x))
ATOMIC(atomicMin, old < x ? old : x)
ATOMIC(atomicMax, old > x ? old : x)
ATOMIC(atomicAnd, (T)(old & x))
ATOMIC(atomicOr, (T)(old | x))
ATOMIC(atomicXor, (T)(old ^ x))
ATOMIC(atomicInc, (T)(old >= x ? 0 : old + 1))
ATOMIC(atomicDec, (T)(old == 0 || old > x ? x : old - 1))
#undef ATOMIC
#undef ATOMIC_IN
#define ATOMIC_CAS(name, reach)                                                                                        \
    template <typename T> __attribute__((noinline)) static T name(T *p, typename std::common_type<T>::type compare,    \
                                                                  typename std::common_type<T>::type x)                \
    {                                                                                                                  \
        return emulated::atomic(p, __builtin_return_address(0), emulated::reach,                                       \
                                [=](T old) -> T { return old == compare ? x : old; }, true);                           \
    }
ATOMIC_CAS(atomicCAS, IN_DEVICE)
ATOMIC_CAS(atomicCAS_system, IN_DEVICE)
ATOMIC_CAS(atomicCAS_block, IN_BLOCK)
#undef ATOMIC_CAS

/* Read-only while the kernel runs.  It is not watched: it says itself what it reads. */
template <typename T> __attribute__((noinline, no_sanitize("thread", "alignment"))) static T __ldg(const T *p)
{
    if (emulated::watcher && emulated::watcher->reads_for_good)
        emulated::watcher->reads_for_good(p, sizeof *p, alignof(T), __builtin_return_address(0));
    return *p;
}

/* ---- what the runtime has for C++ only --------------------------------------------------------------------------- */

template <typename T> static inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    void *at;
    const cudaError_t e = cudaMalloc(&at, bytes);
    *p = static_cast<T *>(at);
    return e;
}

/* To an array of some type: what lies between its numbers need not be there. */
template <typename T, typename From>
static inline cudaError_t cudaMemcpy(T *to, const From *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return emulated::copy_numbers(to, from, bytes, kind, emulated::numbers_of<T>());
}

/* These copy a variable of the device, which here is one of the program. */
template <typename T>
static inline cudaError_t cudaMemcpyToSymbol(T &to, const void *from, size_t bytes, size_t offset = 0)
{
    if (offset > sizeof to || bytes > sizeof to - offset) return cudaErrorInvalidValue;
    emulated::copy_variable(reinterpret_cast<char *>(&to) + offset, from, bytes, emulated::type_of_numbers{});
    return cudaSuccess;
}
template <typename T>
static inline cudaError_t cudaMemcpyFromSymbol(void *to, T &from, size_t bytes, size_t offset = 0)
{
    if (offset > sizeof from || bytes > sizeof from - offset) return cudaErrorInvalidValue;
    emulated::copy_variable(to, reinterpret_cast<char *>(&from) + offset, bytes,
                            emulated::numbers_of<std::remove_all_extents_t<T>>());
    return cudaSuccess;
}

/* Kernels are not told apart: what one may ask for, all may. */
template <typename T> static inline cudaError_t cudaFuncSetAttribute(T *, enum cudaFuncAttribute, int bytes)
{
    if (bytes > emulated::SHARED_MOST) return cudaErrorInvalidValue;
    if (bytes > (int)emulated::shared_allowed) emulated::shared_allowed = (size_t)bytes;
    return cudaSuccess;
}

/* ---- what there is not: an error that names it ------------------------------------------------------------------- */

#define asm inline_PTX_is_not_emulated
#define __asm__ inline_PTX_is_not_emulated
#pragma GCC poison texture surface tex1D tex2D tex3D tex1Dfetch cudaTextureObject_t cudaSurfaceObject_t
#pragma GCC poison __nanosleep clock64 __reduce_add_sync __cvta_generic_to_shared cudaLaunchCooperativeKernel

#endif
