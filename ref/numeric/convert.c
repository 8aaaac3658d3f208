/* convert.c -- loops that convert arrays between the floating-point formats, and sums that do not round.
 *
 * Tensors, samples and messages are converted here, by the model and by devices.  No function here can fail; integers
 * are a mistake of the caller.
 */
#include "ref/numeric/convert.h"
#include "ref/numeric/float16_lanes.h"
#include <assert.h>

enum { PARALLEL_FROM = 1 << 16 };       /* elements below which starting threads costs more than it saves */

/* One loop per pair of formats.  16-bit numbers are uint16_t; fp32 is used as bits where a NaN must not change.  A loop
 * of few numbers does not enter OpenMP at all: a team of one thread takes longer than they do. */
#define LOOP(name, to_type, from_type, expression)                                              \
static void name(void *to, const void *from, int64_t n)                                         \
{                                                                                               \
    to_type *restrict y = to;                                                                   \
    const from_type *restrict x = from;                                                         \
    if (n > PARALLEL_FROM) {                                                                    \
        _Pragma("omp parallel for simd schedule(static)")                                       \
        for (int64_t i = 0; i < n; i++) y[i] = expression;                                      \
        return;                                                                                 \
    }                                                                                           \
    _Pragma("omp simd")                                                                         \
    for (int64_t i = 0; i < n; i++) y[i] = expression;                                          \
}
LOOP(f32_from_f64, float, double, (float)x[i])
LOOP(f32_from_bf16, uint32_t, uint16_t, bf16_widen(x[i]))
LOOP(f32_from_fp16, uint32_t, uint16_t, fp16_widen(x[i]))
LOOP(f64_from_f32, double, float, x[i])
LOOP(f64_from_bf16, double, uint16_t, bf16_lane_to_double(x[i]))
LOOP(f64_from_fp16, double, uint16_t, fp16_lane_to_double(x[i]))
LOOP(bf16_from_f32, uint16_t, uint32_t, bf16_narrow(x[i]))
LOOP(bf16_from_f64, uint16_t, double, bf16_lane_from_double(x[i]))
LOOP(bf16_from_fp16, uint16_t, uint16_t, bf16_narrow(fp16_widen(x[i])))
LOOP(fp16_from_f32, uint16_t, uint32_t, fp16_narrow(x[i]))
LOOP(fp16_from_f64, uint16_t, double, fp16_lane_from_double(x[i]))
LOOP(fp16_from_bf16, uint16_t, uint16_t, fp16_narrow(bf16_widen(x[i])))


/* A sum rounded to fp32.  Bits that are shifted out become a last bit of 1, so the conversion of an integer of 64 bits
 * rounds the sum once; where bits are lost, 27 and more are left. */
static inline float sum_to_float(fixed_sum sum)
{
    const int64_t high = (int64_t)(sum >> 64);
    const uint64_t low = (uint64_t)sum;
    if (high == (int64_t)low >> 63) return (float)(int64_t)low * 0x1p-100f;
    if (high >> 34 == high >> 63)
        return (float)(int64_t)((uint64_t)high << 28 | low >> 36 | ((low & 0xfffffffff) != 0)) * 0x1p-64f;
    return sum == FIXED_NONE ? NAN : (float)(high | (low != 0)) * 0x1p-36f;
}

/* Sums that do not round round once here; they need no aligned address. */
#define ROUND(name, to_type, expression)                                                        \
static void name(void *to, const void *from, int64_t n)                                         \
{                                                                                               \
    to_type *restrict y = to;                                                                   \
    _Pragma("omp parallel for schedule(static) if (n > PARALLEL_FROM)")                         \
    for (int64_t i = 0; i < n; i++) {                                                           \
        const fixed_sum sum = fixed_at(from, i);                                                \
        y[i] = expression;                                                                      \
    }                                                                                           \
}
ROUND(f32_from_exact, float, sum_to_float(sum))
ROUND(f64_from_exact, double, fixed_to_double(sum))
ROUND(bf16_from_exact, uint16_t, bf16_from_double(fixed_to_odd(sum)))
ROUND(fp16_from_exact, uint16_t, fp16_from_double(fixed_to_odd(sum)))

#define BEGIN(name, from_type, expression)                                                      \
static void name(void *to, const void *from, int64_t n)                                         \
{                                                                                               \
    const from_type *restrict x = from;                                                         \
    _Pragma("omp parallel for schedule(static) if (n > PARALLEL_FROM)")                         \
    for (int64_t i = 0; i < n; i++) fixed_put(to, i, fixed_of(expression));                     \
}
BEGIN(exact_from_f32, float, x[i])
BEGIN(exact_from_f64, double, x[i])
BEGIN(exact_from_bf16, uint16_t, bf16_to_double(x[i]))
BEGIN(exact_from_fp16, uint16_t, fp16_to_double(x[i]))

static void (*const loop[DTYPE_COUNT][DTYPE_COUNT])(void *to, const void *from, int64_t n) = {
    [F32] = { [F64] = f32_from_f64, [BF16] = f32_from_bf16, [F16] = f32_from_fp16, [EXACT] = f32_from_exact },
    [F64] = { [F32] = f64_from_f32, [BF16] = f64_from_bf16, [F16] = f64_from_fp16, [EXACT] = f64_from_exact },
    [BF16] = { [F32] = bf16_from_f32, [F64] = bf16_from_f64, [F16] = bf16_from_fp16, [EXACT] = bf16_from_exact },
    [F16] = { [F32] = fp16_from_f32, [F64] = fp16_from_f64, [BF16] = fp16_from_bf16, [EXACT] = fp16_from_exact },
    [EXACT] = { [F32] = exact_from_f32, [F64] = exact_from_f64, [BF16] = exact_from_bf16, [F16] = exact_from_fp16 },
};

/* The arrays must not overlap. */
void convert_numbers(void *to, enum dtype to_format, const void *from, enum dtype from_format, int64_t n)
{
    assert(dtype_unit(to_format) > 0 && dtype_unit(from_format) > 0);
    if (n == 0) return;
    if (to_format == from_format) memcpy(to, from, (size_t)n * dtype_size(to_format));
    else loop[to_format][from_format](to, from, n);
}
