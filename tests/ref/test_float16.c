/* bf16 and fp16, bit for bit: every pattern, every tie and its neighbours, compared with the formats' definitions and
 * with PyTorch.
 *
 * The value of a pattern is computed from its fields with ldexp; the rounded number is found among the two neighbouring
 * patterns.  The test does not use the bit operations of float16.h.
 */
#include "ref/io/safetensors.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* ---- the definitions --------------------------------------------------------------------------------------------- */

static const struct format { enum dtype dtype; int exponent, fraction; } formats[] = { { BF16, 8, 7 }, { F16, 5, 10 } };
enum { FORMATS = 2, PATTERNS = 1 << 16 };

static unsigned infinity_of(const struct format *f) { return ((1u << f->exponent) - 1) << f->fraction; }

/* The size of a pattern without its sign; infinity stands for the number that would come next, where rounding ends. */
static double size_of(const struct format *f, unsigned pattern)
{
    const int exponent = (int)(pattern >> f->fraction), bias = (1 << (f->exponent - 1)) - 1;
    const int fraction = (int)(pattern & ((1u << f->fraction) - 1));
    return exponent == 0 ? ldexp(fraction, 1 - bias - f->fraction)
                         : ldexp(fraction + (1 << f->fraction), exponent - bias - f->fraction);
}

static bool is_nan(const struct format *f, unsigned pattern) { return (pattern & 0x7fff) > infinity_of(f); }

/* The pattern nearest to x, by search; ties go to the even pattern.  Halfway points are exact in double. */
static unsigned nearest(const struct format *f, double x)
{
    const unsigned sign = signbit(x) ? 0x8000 : 0;
    unsigned below = 0, above = infinity_of(f);
    if (fabs(x) >= size_of(f, above)) return sign | above;
    while (above - below > 1) {
        const unsigned middle = (below + above) / 2;
        if (size_of(f, middle) <= fabs(x)) below = middle;
        else above = middle;
    }
    const double halfway = (size_of(f, below) + size_of(f, above)) / 2;
    if (fabs(x) == halfway) return sign | (below % 2 == 0 ? below : above);
    return sign | (fabs(x) < halfway ? below : above);
}

/* ---- one conversion through the arrays' function ----------------------------------------------------------------- */

static uint64_t converted(enum dtype to, enum dtype from, uint64_t bits)
{
    _Alignas(8) char in[8], out[8] = { 0 };
    memcpy(in, &bits, sizeof in);
    convert_numbers(out, to, in, from, 1);
    memcpy(&bits, out, sizeof bits);
    return bits;
}

static void expect(enum dtype to, enum dtype from, uint64_t bits, uint64_t want)
{
    const uint64_t got = converted(to, from, bits);
    if (got != want)
        fail_msg("%s %#llx as %s: got %#llx, want %#llx", dtype_name(from), (unsigned long long)bits, dtype_name(to),
                 (unsigned long long)got, (unsigned long long)want);
}

static uint64_t bits_of_float(float x) { uint32_t b; memcpy(&b, &x, sizeof b); return b; }
static uint64_t bits_of_double(double x) { uint64_t b; memcpy(&b, &x, sizeof b); return b; }

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void every_pattern_widens_exactly(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++)
        for (unsigned p = 0; p < PATTERNS; p++) {
            const uint64_t sign = p >> 15, fraction = p & ((1u << f->fraction) - 1);
            if (is_nan(f, p)) {
                expect(F32, f->dtype, p, sign << 31 | 0x7f800000 | fraction << (23 - f->fraction));
                expect(F64, f->dtype, p, sign << 63 | 0x7ff0000000000000 | fraction << (52 - f->fraction));
                continue;
            }
            const double size = (p & 0x7fff) == infinity_of(f) ? (double)INFINITY : size_of(f, p & 0x7fff),
                         x = sign ? -size : size;
            expect(F64, f->dtype, p, bits_of_double(x));
            expect(F32, f->dtype, p, bits_of_float((float)x));
            uint16_t pattern[4] = { (uint16_t)p };
            assert_true(tensor_get(tensor_1d(pattern, f->dtype, 1), 0) == x);
        }
}

static void every_pattern_comes_back(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++)
        for (unsigned p = 0; p < PATTERNS; p++) {
            const unsigned quiet = is_nan(f, p) ? 1u << (f->fraction - 1) : 0;
            expect(f->dtype, F32, converted(F32, f->dtype, p), p | quiet);
            expect(f->dtype, F64, converted(F64, f->dtype, p), p | quiet);
        }
}

static void try_double(const struct format *f, double x)
{
    expect(f->dtype, F64, bits_of_double(x), nearest(f, x));
    expect(f->dtype, F64, bits_of_double(-x), nearest(f, -x));
    uint16_t set[4];
    tensor_set(tensor_1d(set, f->dtype, 1), 0, x);
    assert_int_equal(set[0], nearest(f, x));
}

static void try_float(const struct format *f, float x)
{
    expect(f->dtype, F32, bits_of_float(x), nearest(f, x));
    expect(f->dtype, F32, bits_of_float(-x), nearest(f, -x));
}

/* Every tie, the tie above the largest number among them, and what lies next to each on both sides, in fp32 and in
 * fp64: a step of fp64 beside a tie is what rounding by way of fp32 would lose. */
static void every_tie_and_its_neighbours(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++)
        for (unsigned p = 0; p < infinity_of(f); p++) {
            const double x[] = { size_of(f, p), (size_of(f, p) + size_of(f, p + 1)) / 2 };
            for (int i = 0; i < 2; i++) {
                try_double(f, x[i]);
                try_double(f, nextafter(x[i], INFINITY));
                if (x[i] > 0) try_double(f, nextafter(x[i], 0));
                if (fabs(x[i]) > FLT_MAX) continue;
                try_float(f, (float)x[i]);
                try_float(f, nextafterf((float)x[i], INFINITY));
                if (x[i] > 0) try_float(f, nextafterf((float)x[i], 0));
            }
        }
}

static void numbers_of_all_sizes(void **state)
{
    (void)state;
    const double ends[] = { 0,       DBL_TRUE_MIN,        DBL_MIN, FLT_TRUE_MIN / 2, FLT_TRUE_MIN, FLT_MIN,
                            FLT_MAX, (double)FLT_MAX * 2, DBL_MAX, INFINITY };
    for (const struct format *f = formats; f < formats + FORMATS; f++) {
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) try_double(f, ends[i]);
        for (uint64_t i = 0; i < 300000; i++) {
            const uint32_t counter[4] = { (uint32_t)i, 0, 0, 0 }, key[2] = { 11, 7 };
            uint32_t word[4];
            philox4x32(counter, key, word);
            if ((word[0] & 0x7f800000) != 0x7f800000) try_float(f, float_of_bits(word[0] & 0x7fffffff));
            const uint64_t b = (uint64_t)(word[1] & 0x7fffffff) << 32 | word[2];
            if ((b >> 52) != 0x7ff) try_double(f, double_of_bits(b));
            try_double(f,
                       ldexp(double_of_bits((b & 0xfffffffffffff) | 0x3ff0000000000000), (int)(word[3] % 300) - 160));
        }
    }
}

static void nan_keeps_sign_and_leading_payload(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + FORMATS; f++) {
        const unsigned quiet = infinity_of(f) | 1u << (f->fraction - 1);
        expect(f->dtype, F32, 0x7f800001, quiet);                   /* its only payload bit is cut off; still a NaN */
        expect(f->dtype, F32, 0xff800001, 0x8000 | quiet);
        expect(f->dtype, F64, 0x7ff0000000000001, quiet);
        expect(f->dtype, F64, 0xfff0000000000001, 0x8000 | quiet);
        expect(f->dtype, F32, 0x7fffffff, 0x7fff);
        expect(f->dtype, F32, 0x7f800000 | 1u << (23 - f->fraction), quiet | 1);
        expect(f->dtype, F64, 0x7ff0000000000000 | 1ull << (52 - f->fraction), quiet | 1);
    }
    expect(F16, BF16, 0x7f81, 0x7e08);
    expect(BF16, F16, 0xfc08, 0xffc1);
}

static void between_the_two(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const struct format *from = &formats[i], *to = &formats[1 - i];
        for (unsigned p = 0; p < infinity_of(from); p++) {
            expect(to->dtype, from->dtype, p, nearest(to, size_of(from, p)));
            expect(to->dtype, from->dtype, p | 0x8000, nearest(to, -size_of(from, p)));
        }
        expect(to->dtype, from->dtype, infinity_of(from), infinity_of(to));
    }
}

/* Lengths that no vector fills, at every offset, and enough for threads: all as one at a time, and nothing beyond. */
static void arrays_as_single_numbers(void **state)
{
    (void)state;
    enum { LONG = 100003, ROOM = LONG + 16 };
    const enum dtype all[] = { F32, F64, BF16, F16 };
    char *from = malloc(ROOM * 8), *to = malloc(ROOM * 8);
    assert_true(from && to);
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            for (int64_t n = 0; n <= LONG; n = n < 40 ? n + 1 : n < LONG ? LONG : LONG + 1) {
                const size_t in = dtype_size(all[b]), out = dtype_size(all[a]), first = (size_t)n % 5;
                const struct tensor x = tensor_1d(from + first * in, all[b], n);
                for (int64_t i = 0; i < n; i++)
                    tensor_set(x, i, ldexp(random_uniform(3, 4, (uint64_t)i) - 0.5, (int)(i % 60) - 40));
                memset(to, 0x5a, ROOM * out);
                tensor_convert(tensor_1d(to + first * out, all[a], n), x);
                for (int64_t i = 0; i < n; i++) {
                    uint64_t bits = 0, got = 0;
                    memcpy(&bits, (char *)x.data + (size_t)i * in, in);
                    memcpy(&got, to + (first + (size_t)i) * out, out);
                    if (got != converted(all[a], all[b], bits))
                        fail_msg("%s as %s: element %lld of %lld", dtype_name(all[b]), dtype_name(all[a]), (long long)i,
                                 (long long)n);
                }
                for (size_t i = 0; i < ROOM * out; i++)
                    if ((i < first * out || i >= (first + (size_t)n) * out) && to[i] != 0x5a)
                        fail_msg("wrote outside, at byte %zu", i);
            }
    free(from), free(to);
}

/* golden/float16.safetensors: what PyTorch makes of the same bits. */
static void as_pytorch_rounds(void **state)
{
    (void)state;
    struct safetensors file;
    struct error err;
    const char *const name[] = { "fp32",         "fp64.high",    "fp64.low",    "fp32.as.bf16",
                                 "fp32.as.fp16", "fp64.as.bf16", "fp64.as.fp16" };
    int32_t *bits[7];
    if (safetensors_open(&file, "golden/float16.safetensors", &err) != OK) fail_msg("%s", err.text);
    const struct safetensors_entry *first = safetensors_find(&file, "fp32");
    assert_non_null(first);
    assert_true(first->count > 1000);
    for (int i = 0; i < 7; i++) {
        const struct safetensors_entry *e = safetensors_find(&file, name[i]);
        assert_non_null(e);
        assert_int_equal(e->count, first->count);
        bits[i] = malloc((size_t)e->count * sizeof **bits);
        assert_non_null(bits[i]);
        if (safetensors_read(&file, e, I32, bits[i], &err) != OK) fail_msg("%s", err.text);
    }
    for (int64_t i = 0; i < first->count; i++) {
        const uint64_t wide = (uint64_t)(uint32_t)bits[1][i] << 32 | (uint32_t)bits[2][i];
        expect(BF16, F32, (uint32_t)bits[0][i], (uint64_t)bits[3][i]);
        expect(F16, F32, (uint32_t)bits[0][i], (uint64_t)bits[4][i]);
        expect(BF16, F64, wide, (uint64_t)bits[5][i]);
        expect(F16, F64, wide, (uint64_t)bits[6][i]);
    }
    for (int i = 0; i < 7; i++) free(bits[i]);
    safetensors_close(&file);
}

static void names_sizes_and_units(void **state)
{
    (void)state;
    assert_int_equal(dtype_by_name("bf16"), BF16);
    assert_int_equal(dtype_by_name("F16"), F16);
    for (const struct format *f = formats; f < formats + FORMATS; f++) {
        assert_int_equal(dtype_size(f->dtype), 2);
        assert_int_equal(dtype_wide(f->dtype), F32);
        assert_true(dtype_unit(f->dtype) == ldexp(1, -f->fraction - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_sizes_and_units), cmocka_unit_test(every_pattern_widens_exactly),
        cmocka_unit_test(every_pattern_comes_back), cmocka_unit_test(every_tie_and_its_neighbours),
        cmocka_unit_test(numbers_of_all_sizes), cmocka_unit_test(nan_keeps_sign_and_leading_payload),
        cmocka_unit_test(between_the_two), cmocka_unit_test(arrays_as_single_numbers),
            cmocka_unit_test(as_pytorch_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
