/* sixteen.h -- what half and bfloat16 have in common: arithmetic, comparisons, and vectors of two.
 *
 * Results are rounded to fp32, then to 16 bits: the same as once, since 24 >= 2 * 11 + 2 places.
 * Source  S. A. Figueroa, "When is double rounding innocuous?", doi:10.1145/221332.221334.
 * Called  cuda_bf16.h and cuda_fp16.h include this file for the two types.
 */
#ifndef ORRERY_EMULATED_SIXTEEN_H
#define ORRERY_EMULATED_SIXTEEN_H

#include "emulated_devices/device/cuda/emulated/vector_types.h"
#include "ref/numeric/float16.h"
#include <cmath>

namespace emulated {
/* a b + c, rounded to an odd last bit if it is not exact: then rounding once more is as rounding once. */
static inline double multiplied_and_added(double a, double b, double c)
{
    const double p = a * b, sum = p + c, of_c = sum - p, error = (p - (sum - of_c)) + (c - of_c);
    const uint64_t bits = double_bits(sum);
    if (!(error < 0 || error > 0) || bits & 1) return sum;      /* also if sum is not finite */
    return double_of_bits((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}
}

/* FORMAT: fp16 or bf16, as ref/numeric/float16.h calls it. */
#define NUMBER_OF_16_BITS(T, FORMAT)                                                                                   \
    struct T {                                                                                                         \
        uint16_t bits;                                                                                                 \
        T() = default;                                                                                                 \
        T(float x) : bits(FORMAT##_from_float(x)) { }                                                                  \
        T(double x) : bits(FORMAT##_from_double(x)) { }                                                                \
        T(int x) : bits(FORMAT##_from_double(x)) { }                                                                   \
        T(unsigned x) : bits(FORMAT##_from_double(x)) { }                                                              \
        operator float() const { return FORMAT##_to_float(bits); }                                                     \
    };                                                                                                                 \
    struct alignas(4) T##2 { T x, y; };                                                                                \
    namespace emulated {                                                                                               \
    static inline T of_bits(const T *, uint16_t bits) { T x; x.bits = bits; return x; }                                \
    }                                                                                                                  \
    OPERATION_OF_16_BITS(T, __hadd, +)                                                                                 \
    OPERATION_OF_16_BITS(T, __hsub, -)                                                                                 \
    OPERATION_OF_16_BITS(T, __hmul, *)                                                                                 \
    OPERATION_OF_16_BITS(T, __hdiv, /)                                                                                 \
    COMPARISON_OF_16_BITS(T, __heq, ==)                                                                                \
    COMPARISON_OF_16_BITS(T, __hne, !=)                                                                                \
    COMPARISON_OF_16_BITS(T, __hlt, <)                                                                                 \
    COMPARISON_OF_16_BITS(T, __hle, <=)                                                                                \
    COMPARISON_OF_16_BITS(T, __hgt, >)                                                                                 \
    COMPARISON_OF_16_BITS(T, __hge, >=)                                                                                \
    static inline bool __hisnan(T a) { return (float)a != (float)a; }                                                  \
    static inline T __hneg(T a) { return emulated::of_bits((T *)0, (uint16_t)(a.bits ^ 0x8000)); }                     \
    static inline T __habs(T a) { return emulated::of_bits((T *)0, (uint16_t)(a.bits & 0x7fff)); }                     \
    static inline T operator-(T a) { return __hneg(a); }                                                               \
    static inline T __hmax(T a, T b) { return fmaxf(a, b); }                                                           \
    static inline T __hmin(T a, T b) { return fminf(a, b); }                                                           \
    static inline T __hfma(T a, T b, T c) { return emulated::multiplied_and_added((float)a, (float)b, (float)c); }     \
    static inline T hexp(T a) { return expf(a); }                                                                      \
    static inline T hlog(T a) { return logf(a); }                                                                      \
    static inline T hsqrt(T a) { return sqrtf(a); }                                                                    \
    static inline T hrsqrt(T a) { return 1 / sqrtf(a); }                                                               \
    static inline T##2 __hfma2(T##2 a, T##2 b, T##2 c) { return { __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) }; }    \
    static inline T##2 __hneg2(T##2 a) { return { __hneg(a.x), __hneg(a.y) }; }                                        \
    static inline T##2 operator-(T##2 a) { return __hneg2(a); }                                                        \
    static inline T##2 __h2div(T##2 a, T##2 b) { return a / b; }                                                       \
    static inline float __low2float(T##2 a) { return a.x; }                                                            \
    static inline float __high2float(T##2 a) { return a.y; }

#define OPERATION_OF_16_BITS(T, name, sign)                                                                            \
    static inline T name(T a, T b) { return (float)a sign (float)b; }                                                  \
    static inline T operator sign(T a, T b) { return name(a, b); }                                                     \
    static inline T &operator sign##=(T &a, T b) { return a = a sign b; }                                              \
    static inline T##2 name##2(T##2 a, T##2 b) { return { name(a.x, b.x), name(a.y, b.y) }; }                          \
    static inline T##2 operator sign(T##2 a, T##2 b) { return name##2(a, b); }                                         \
    static inline T##2 &operator sign##=(T##2 &a, T##2 b) { return a = a sign b; }
#define COMPARISON_OF_16_BITS(T, name, sign)                                                                           \
    static inline bool name(T a, T b) { return (float)a sign (float)b; }                                               \
    static inline bool operator sign(T a, T b) { return name(a, b); }

#endif
