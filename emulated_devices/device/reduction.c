/* reduction.c -- element-wise reductions of arrays on the host, in all number formats.
 *
 * generic.c calls this file for backends without a reduction of their own, which is how collectives add.  No function
 * here can fail.
 */
#include "emulated_devices/device/reduction.h"
#include "ref/numeric/fixed_sum.h"
#include "ref/numeric/float16.h"
#include <stdbool.h>
#include <string.h>

const char *reduction_name(enum reduction reduction)
{
    static const char *const name[] = {
#define X(id, text) [id] = text,
        REDUCTIONS(X)
#undef X
    };
    return reduction < REDUCTION_COUNT ? name[reduction] : "unknown reduction";
}

/* One loop for each number format and reduction, in a wider type.  Integers are added and multiplied as unsigned: they
 * wrap round, which is defined.  16-bit numbers are computed in fp32: a sum, product or quotient, rounded again to 16
 * bits, equals the one rounded once (S. Figueroa, doi:10.1145/221332.221334: 24 >= 2 * 11 + 2 bits).
 * x != x tests for NaN, which MAX and MIN keep.  For integers the compiler removes this comparison. */
#define REDUCE(suffix, type, wide, WIDEN, NARROW)                                                                 \
static void reduce_##suffix(enum reduction how, type *restrict into, const type *restrict from, int64_t n)         \
{                                                                                                                  \
    switch (how) {                                                                                                 \
    case SUM:                                                                                                      \
    case AVERAGE: EACH { const wide x = WIDEN(into[i]), y = WIDEN(from[i]); into[i] = NARROW(x + y); } break;      \
    case PRODUCT: EACH { const wide x = WIDEN(into[i]), y = WIDEN(from[i]); into[i] = NARROW(x * y); } break;      \
    case MAX:     EACH if (WIDEN(from[i]) > WIDEN(into[i]) || WIDEN(from[i]) != WIDEN(from[i])) into[i] = from[i]; \
        break; \
    case MIN:     EACH if (WIDEN(from[i]) < WIDEN(into[i]) || WIDEN(from[i]) != WIDEN(from[i])) into[i] = from[i]; \
        break; \
    case REDUCTION_COUNT: break;                                                                                   \
    }                                                                                                              \
}                                                                                                                  \
static inline type plus_##suffix(type x, type y)                                                                   \
{                                                                                                                  \
    const wide a = WIDEN(x), b = WIDEN(y);                                                                         \
    return NARROW(a + b);                                                                                          \
}                                                                                                                  \
static void add_##suffix(type *into, const void *const *part, int more, int64_t n)                                 \
{                                                                                                                  \
    const type *a = part[0], *b = part[1], *c = more > 1 ? part[2] : a, *d = more > 2 ? part[3] : a,               \
               *e = more > 3 ? part[4] : a;                                                                        \
    if (more == 1) { ALIKE EACH into[i] = plus_##suffix(a[i], b[i]); }                                             \
    if (more == 2) { ALIKE EACH into[i] = plus_##suffix(plus_##suffix(a[i], b[i]), c[i]); }                        \
    if (more == 3) { ALIKE EACH into[i] = plus_##suffix(plus_##suffix(plus_##suffix(a[i], b[i]), c[i]), d[i]); }   \
    if (more == 4) {                                                                                               \
        ALIKE EACH into[i] = plus_##suffix(plus_##suffix(plus_##suffix(plus_##suffix(a[i], b[i]), c[i]), d[i]), e[i]);\
    }                                                                                                              \
}                                                                                                                  \
static void divide_##suffix(type *x, int64_t n, int by)                                                            \
{                                                                                                                  \
    EACH x[i] = NARROW(WIDEN(x[i]) / by);                                                                          \
}
#define EACH for (int64_t i = 0; i < n; i++)
#define ALIKE _Pragma("omp simd")       /* `into` may be `a`, but no other element of it */
#define SAME(x) (x)

REDUCE(f32, float, float, SAME, SAME)
REDUCE(f64, double, double, SAME, SAME)
REDUCE(bf16, uint16_t, float, bf16_to_float, bf16_from_float)
REDUCE(f16, uint16_t, float, fp16_to_float, fp16_from_float)
REDUCE(i32, int32_t, uint32_t, SAME, (int32_t))
REDUCE(i64, int64_t, uint64_t, SAME, (int64_t))
REDUCE(u8, uint8_t, unsigned, SAME, (uint8_t))

/* Sums that do not round; a sum that does not exist stays so.  A product rounds to fp64 first.  Messages may end at any
 * byte, so nothing here needs an aligned address. */
static fixed_sum reduced(enum reduction how, fixed_sum a, fixed_sum b)
{
    if (a == FIXED_NONE || b == FIXED_NONE) return FIXED_NONE;
    if (how == PRODUCT) return fixed_of(fixed_to_double(a) * fixed_to_double(b));
    if (how == MAX || how == MIN) return (how == MAX) == (b > a) ? b : a;
    return fixed_add(a, b);
}

static void reduce_exact(enum reduction how, void *into, const void *from, int64_t n)
{
    EACH fixed_put(into, i, reduced(how, fixed_at(into, i), fixed_at(from, i)));
}

static void add_exact(void *into, const void *const *part, int more, int64_t n)
{
    EACH {
        fixed_sum sum = fixed_at(part[0], i);
        for (int k = 1; k <= more; k++) sum = fixed_add(sum, fixed_at(part[k], i));
        fixed_put(into, i, sum);
    }
}

static void divide_exact(void *x, int64_t n, int by)
{
    EACH fixed_put(x, i, fixed_at(x, i) == FIXED_NONE ? FIXED_NONE : fixed_at(x, i) / by);
}

/* into[i] = into[i] (op) from[i], rounded to the format after each pair. */
void reduction_apply(enum reduction how, enum dtype dtype, void *into, const void *from, int64_t n)
{
    switch (dtype) {
    case F32: reduce_f32(how, into, from, n); break;
    case F64: reduce_f64(how, into, from, n); break;
    case BF16: reduce_bf16(how, into, from, n); break;
    case F16: reduce_f16(how, into, from, n); break;
    case I32: reduce_i32(how, into, from, n); break;
    case I64: reduce_i64(how, into, from, n); break;
    case U8:  reduce_u8(how, into, from, n); break;
    case EXACT: reduce_exact(how, into, from, n); break;
    case DTYPE_COUNT: break;
    }
}

/* Adds this many more parts in one pass over memory. */
enum { MORE = 4 };

static void reduction_add(enum dtype dtype, void *into, const void *const *part, int more, int64_t n)
{
    switch (dtype) {
    case F32: add_f32(into, part, more, n); break;
    case F64: add_f64(into, part, more, n); break;
    case BF16: add_bf16(into, part, more, n); break;
    case F16: add_f16(into, part, more, n); break;
    case I32: add_i32(into, part, more, n); break;
    case I64: add_i64(into, part, more, n); break;
    case U8:  add_u8(into, part, more, n); break;
    case EXACT: add_exact(into, part, more, n); break;
    case DTYPE_COUNT: break;
    }
}

/* into = part[0] (op) part[1] (op) .., in this order.  Sums read up to five arrays at once, with the same roundings. */
void reduction_all(enum reduction how, enum dtype dtype, void *into, const void *const *part, int parts, int64_t n)
{
    const bool adds = how == SUM || how == AVERAGE;
    if (n == 0) return;
    /* Only sums begin from two parts at once; others begin from a copy of the first. */
    if ((!adds || parts == 1) && into != part[0]) memcpy(into, part[0], (size_t)n * dtype_size(dtype));
    for (int i = 1; i < parts && !adds; i++) reduction_apply(how, dtype, into, part[i], n);
    for (int i = 1, more; i < parts && adds; i += more) {
        /* The first group begins with part 0, each later one with the sum so far. */
        const void *group[1 + MORE] = { i == 1 ? part[0] : into };
        more = parts - i < MORE ? parts - i : MORE;
        for (int k = 0; k < more; k++) group[1 + k] = part[i + k];
        reduction_add(dtype, into, group, more, n);
    }
}

/* x[i] = x[i] / by, rounded once; integers round toward zero. */
void reduction_divide(enum dtype dtype, void *x, int64_t n, int by)
{
    switch (dtype) {
    case F32: divide_f32(x, n, by); break;
    case F64: divide_f64(x, n, by); break;
    case BF16: divide_bf16(x, n, by); break;
    case F16: divide_f16(x, n, by); break;
    case I32: divide_i32(x, n, by); break;
    case I64: divide_i64(x, n, by); break;
    case U8:  divide_u8(x, n, by); break;
    case EXACT: divide_exact(x, n, by); break;
    case DTYPE_COUNT: break;
    }
}
