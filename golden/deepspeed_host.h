// deepspeed_host.h -- what DeepSpeed's quantisation kernels need of CUDA, for one thread on a processor.  See deepspeed_host.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <limits>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(threads)
typedef struct CUstream_st* cudaStream_t;
using std::max;
using std::min;

// ---- numbers: every conversion rounds to nearest, ties to even; to an integer it saturates, and a NaN becomes 0 -----------------

struct __half { uint16_t bits; };
struct __half2 { __half x, y; };
struct float2 { float x, y; };
typedef __half half;

inline float __half2float(__half h) { return _cvtsh_ss(h.bits); }
inline __half __float2half(float x) { return { (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT) }; }
__half __double2half(double);                           // named by a header, used by nothing that runs here, and so not defined
inline float2 __half22float2(__half2 h) { return { __half2float(h.x), __half2float(h.y) }; }
inline __half2 __float22half2_rn(float2 x) { return { __float2half(x.x), __float2half(x.y) }; }
inline __half2 __float2half2_rn(float x) { return { __float2half(x), __float2half(x) }; }

template <typename T, typename F>
T to_integer(F x)
{
    const double y = std::nearbyint(double(x));
    if (y != y) return 0;
    if (y >= double(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    return y <= double(std::numeric_limits<T>::min()) ? std::numeric_limits<T>::min() : T(y);
}

#define TO_INTEGER(name, type)                                                        \
    inline type __double2##name##_rn(double x) { return to_integer<type>(x); }        \
    inline type __float2##name##_rn(float x) { return to_integer<type>(x); }          \
    inline type __half2##name##_rn(__half x) { return to_integer<type>(__half2float(x)); }
TO_INTEGER(ll, int64_t)
TO_INTEGER(int, int32_t)
TO_INTEGER(ull, uint64_t)
TO_INTEGER(uint, uint32_t)

#define FROM_INTEGER(name, type)                                        \
    inline double __##name##2double_rn(type x) { return double(x); }    \
    inline float __##name##2float_rn(type x) { return float(x); }       \
    inline __half __##name##2half_rn(type x) { return __float2half(float(x)); }
FROM_INTEGER(ll, int64_t)
FROM_INTEGER(int, int32_t)
FROM_INTEGER(ull, uint64_t)
FROM_INTEGER(uint, uint32_t)
FROM_INTEGER(short, int16_t)
FROM_INTEGER(ushort, uint16_t)
inline float __double2float_rn(double x) { return float(x); }

inline __half2 __habs2(__half2 h) { return { { uint16_t(h.x.bits & 0x7fff) }, { uint16_t(h.y.bits & 0x7fff) } }; }

// ---- a block of one thread ---------------------------------------------------------------------------------------------------

struct dim3 { unsigned x, y, z; };
static dim3 place, grid;                                // which block this is, and of how many
#define blockIdx place
#define gridDim grid

namespace cooperative_groups {
struct thread_block {
    dim3 group_index() const { return place; }
    dim3 thread_index() const { return { 0, 0, 0 }; }
    dim3 group_dim() const { return { 1, 1, 1 }; }
    int size() const { return 1; }
};
inline thread_block this_thread_block() { return {}; }
template <int> struct thread_block_tile {};
template <int size> thread_block_tile<size> tiled_partition(thread_block) { return {}; }
}
namespace cg = cooperative_groups;

// ---- memory_access_utils.h ----------------------------------------------------------------------------------------------------

namespace mem_access {
template <int size> void load_global(void* to, const void* from) { memcpy(to, from, size); }
template <int size> void load_global(void* to, const void* from, bool really)
{
    if (really) memcpy(to, from, size);
    else memset(to, 0, size);
}
template <int size> void store_global(void* to, const void* from) { memcpy(to, from, size); }
}

// ---- reduction_utils.h: over the elements of a thread; over threads there is nothing to do ---------------------------------------

namespace reduce {
enum class ROpType { Add, Min, Max };

inline __half max_of(__half a, __half b) { return __half2float(a) > __half2float(b) ? a : b; }
inline __half sum_of(__half a, __half b) { return __float2half(__half2float(a) + __half2float(b)); }    // fp32 is wide enough to round once
template <ROpType op> __half2 element(__half2 a, __half2 b)
{
    if (op == ROpType::Max) return { max_of(a.x, b.x), max_of(a.y, b.y) };
    return { sum_of(a.x, b.x), sum_of(a.y, b.y) };
}
template <ROpType op> float element(float a, float b) { return op == ROpType::Max ? fmaxf(a, b) : op == ROpType::Min ? fminf(a, b) : a + b; }
template <ROpType op, typename T> T init()
{
    const __half zero = { 0 }, lowest = { 0xfc00 }, highest = { 0x7c00 };
    const __half of = op == ROpType::Add ? zero : op == ROpType::Max ? lowest : highest;
    return { of, of };
}
template <ROpType op, int threads> void partitioned_block(cg::thread_block&, cg::thread_block_tile<32>&, float&) {}
template <ROpType, ROpType, int> void partitioned_block(cg::thread_block&, cg::thread_block_tile<32>&, float&, float&) {}
}
