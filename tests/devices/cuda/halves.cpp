/* halves.cpp -- the functions of two headers, as a table.  Compiled twice: with the emulator's headers; and, if NVIDIA is
 * defined, with NVIDIA's, where there are any.
 */
#include "tests/devices/cuda/halves.h"
#include <cstring>

#ifdef NVIDIA
#define TABLE nvidia_halves
#else
#define TABLE emulated_halves
#endif

#if !defined NVIDIA || (__has_include(<cuda_fp16.h>) && __has_include(<cuda_bf16.h>))
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename To, typename From> static To as(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static float float_in(uint64_t x) { return (float)as<double>(x); }

static __half half_of(uint16_t x) { return __ushort_as_half(x); }
static uint16_t bits(__half x) { return __half_as_ushort(x); }
static float widened(__half x) { return __half2float(x); }
static __nv_bfloat16 bfloat_of(uint16_t x) { return __ushort_as_bfloat16(x); }
static uint16_t bits(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }
static float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
template <typename T> static T add_to(T a, T b) { return a += b; }

#define NARROWS(f, how) [](uint64_t x) -> uint16_t { return bits(f(how(x))); }
#define OPERATOR(of, sign) [](uint16_t a, uint16_t b) -> uint16_t { return bits(of(a) sign of(b)); }
#define NAMED(of, f) [](uint16_t a, uint16_t b) -> uint16_t { return bits(f(of(a), of(b))); }
#define FORMAT(name, of, from_float, from_float_rn, from_double)                                                       \
    { name, [](uint16_t x) { return as<uint32_t>(widened(of(x))); },                                                   \
      { NARROWS(from_float, float_in), NARROWS(from_float_rn, float_in), NARROWS(from_double, as<double>) },           \
      { OPERATOR(of, +), OPERATOR(of, -), OPERATOR(of, *), OPERATOR(of, /), NAMED(of, add_to), NAMED(of, __hadd),      \
        NAMED(of, __hsub), NAMED(of, __hmul), NAMED(of, __hdiv) } }

extern const struct halves TABLE[HALVES] = {
    FORMAT("fp16", half_of, __float2half, __float2half_rn, __double2half),
    FORMAT("bf16", bfloat_of, __float2bfloat16, __float2bfloat16_rn, __double2bfloat16),
};

#else
extern const struct halves TABLE[HALVES] = {};
#endif
