/* device_functions.h -- the functions on numbers that kernels call and C++ does not have.
 *
 * cuda_runtime.h includes this file for every .cu file that is compiled for the CPU.  Results are those of a GPU's
 * exact functions; fast ones are more exact here.  No function returns an error code.
 */
#ifndef ORRERY_EMULATED_DEVICE_FUNCTIONS_H
#define ORRERY_EMULATED_DEVICE_FUNCTIONS_H

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
static inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
static inline unsigned __brev(unsigned x)
{
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y = y << 1 | (x >> i & 1);
    return y;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (by & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
/* Byte i is the one of the eight that digit i of s names. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned made = 0;
    for (int i = 0; i < 4; i++) made |= (unsigned)(both >> (s >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return made;
}
static inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }

#define SAME_BITS(name, To, From)                                                                                      \
    static inline To name(From x) { To y; static_assert(sizeof x == sizeof y, ""); memcpy(&y, &x, sizeof y); return y; }
SAME_BITS(__float_as_int, int, float)
SAME_BITS(__int_as_float, float, int)
SAME_BITS(__float_as_uint, unsigned, float)
SAME_BITS(__uint_as_float, float, unsigned)
SAME_BITS(__double_as_longlong, long long, double)
SAME_BITS(__longlong_as_double, double, long long)
#undef SAME_BITS

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }

/* A volatile result is not fused with what is done to it. */
#define ROUNDED(name, T, result) static inline T name(T a, T b) { volatile T y = result; return y; }
ROUNDED(__fadd_rn, float, a + b)
ROUNDED(__fsub_rn, float, a - b)
ROUNDED(__fmul_rn, float, a * b)
ROUNDED(__fdiv_rn, float, a / b)
ROUNDED(__dadd_rn, double, a + b)
ROUNDED(__dsub_rn, double, a - b)
ROUNDED(__dmul_rn, double, a * b)
ROUNDED(__ddiv_rn, double, a / b)
#undef ROUNDED
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __saturatef(float x) { return x >= 1 ? 1 : x > 0 ? x : 0; }

/* A GPU's are less exact. */
static inline float __fdividef(float a, float b) { return a / b; }
/* Words, since the C library has functions of its own with these names. */
#define __expf(x) expf(x)
#define __exp10f(x) powf(10, x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)

/* To the nearest, to zero, down, up; what does not fit is the nearest number that does.  NaN is 0, and of a double the
 * least number: cvt of the PTX ISA. */
template <typename I, typename F> static inline I __emulated_whole(F x)
{
    const F most = (F)(I)(((typename std::make_unsigned<I>::type)~0) >> std::is_signed<I>::value);
    if (x != x) return sizeof x == 8 ? std::numeric_limits<I>::min() : 0;
    if (x >= most) return (I)(((typename std::make_unsigned<I>::type)~0) >> std::is_signed<I>::value);
    return std::is_signed<I>::value ? x <= -most ? (I)(-most) : (I)x : x <= 0 ? 0 : (I)x;
}
#define WHOLE(name, I, F)                                                                                              \
    static inline I name##_rn(F x) { return __emulated_whole<I>(rint(x)); }                                            \
    static inline I name##_rz(F x) { return __emulated_whole<I>(trunc(x)); }                                           \
    static inline I name##_rd(F x) { return __emulated_whole<I>(floor(x)); }                                           \
    static inline I name##_ru(F x) { return __emulated_whole<I>(ceil(x)); }
WHOLE(__float2int, int, float)
WHOLE(__float2uint, unsigned, float)
WHOLE(__double2int, int, double)
#undef WHOLE
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline double __int2double_rn(int x) { return x; }

/* If one of two floats is NaN, the result is the other, as of fminf and fmaxf: crt/math_functions.hpp of CUDA. */
template <typename T> static inline T min(T a, T b) { return a != a || b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return a != a || a < b ? b : a; }
/* Two kinds of numbers mix as in NVIDIA's headers: two floats, or integers that differ in their sign alone. */
#define UNSIGNED_OF(T) std::make_unsigned_t<std::conditional_t<std::is_integral<T>::value, decltype(+T()), int>>
#define OF_TWO(A, B) std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value                     \
                                      && !std::is_same<A, B>::value                                                    \
                                      && std::is_integral<A>::value == std::is_integral<B>::value                      \
                                      && std::is_same<UNSIGNED_OF(A), UNSIGNED_OF(B)>::value, std::common_type_t<A, B>>
template <typename A, typename B, typename C = OF_TWO(A, B)> static inline C min(A a, B b) { return min((C)a, (C)b); }
template <typename A, typename B, typename C = OF_TWO(A, B)> static inline C max(A a, B b) { return max((C)a, (C)b); }
#undef OF_TWO
#undef UNSIGNED_OF

#endif
