/* Sums of squares without rounding: correct, with equal bits for any order and any partition.
 * tier: check
 */
#include "ref/numeric/exact_sum.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { N = 70001 };                             /* more than two blocks, and no multiple of anything */

static double data[N];                          /* room for any format */

/* Numbers of very different sizes. */
static struct tensor scattered(enum dtype t, int64_t n)
{
    const struct tensor x = tensor_1d(data, t, n);
    const double range = t == F64 ? 600 : t == F16 ? 12 : 60;
    for (int64_t i = 0; i < n; i++)
        tensor_set(x, i,
                   (random_uniform(1, 2, (uint64_t)i) - 0.5) * exp2(range * (random_uniform(1, 3, (uint64_t)i) - 0.5)));
    return x;
}

static struct tensor part(struct tensor x, int64_t first, int64_t n)
{
    return tensor_1d((char *)x.data + (size_t)first * dtype_size(x.dtype), x.dtype, n);
}

static double sum_of(struct tensor x)
{
    struct exact_sum s = { .infinite = 0 };
    exact_add_squares(&s, x);
    return exact_value(&s);
}

/* In `parts` uneven pieces, dealt out over three sums, which are sent as numbers and added up backwards. */
static double sum_in_parts(struct tensor x, int parts)
{
    struct exact_sum s[3] = { { .infinite = 0 } }, all;
    double number[3][EXACT_LIMBS];
    const int64_t n = tensor_count(x);
    for (int p = parts - 1; p >= 0; p--)
        exact_add_squares(&s[p % 3], part(x, n * p / parts, n * (p + 1) / parts - n * p / parts));
    for (int k = 0; k < 3; k++) exact_to_numbers(&s[k], number[k]);
    for (int i = 0; i < EXACT_LIMBS; i++) number[2][i] += number[1][i] + number[0][i];
    exact_from_numbers(&all, number[2]);
    return exact_value(&all);
}

static void test_any_cut(void **state)
{
    static const enum dtype formats[] = { F32, F64, BF16, F16 };
    (void)state;
    for (int f = 0; f < 4; f++) {
        const struct tensor x = scattered(formats[f], N);
        const double whole = sum_of(x);
        long double near = 0;
        for (int64_t i = 0; i < N; i++) near += (long double)tensor_get(x, i) * (long double)tensor_get(x, i);
        assert_true(fabs(whole - (double)near) <= 1e-12 * whole && whole > 0);
        for (int parts = 2; parts < 40; parts += 7)
            if (sum_in_parts(x, parts) != whole)
                fail_msg("%s in %d parts: %.17g, whole %.17g", dtype_name(formats[f]), parts, sum_in_parts(x, parts),
                         whole);
    }
}

/* A sum in the middle of two numbers is even; a bit far below the last one decides otherwise. */
static void test_rounds_once(void **state)
{
    (void)state;
    data[0] = 1, data[1] = data[2] = 0x1p-27, data[3] = 0x1p-400;
    assert_true(sum_of(tensor_1d(data, F64, 3)) == 1);
    assert_true(sum_of(tensor_1d(data, F64, 4)) == 1 + 0x1p-52);
    data[0] = 0x1p-537, data[1] = 0;
    assert_true(sum_of(tensor_1d(data, F64, 2)) == 0x1p-1074 && sum_of(tensor_1d(data + 1, F64, 1)) == 0);
}

/* What a sum in double would lose: many small terms beside a large one, in the middle of them. */
static void test_nothing_is_lost(void **state)
{
    (void)state;
    for (int64_t i = 0; i < N; i++) data[i] = i == N / 2 ? 0x1p40 : 1;
    assert_true(sum_of(tensor_1d(data, F64, N)) == 0x1p80);       /* they weigh less than half an ulp together */
    for (int64_t i = 0; i < N; i++) data[i] = i == N / 2 ? 0x1p30 : 1;
    assert_true(sum_of(tensor_1d(data, F64, N)) == 0x1p60 + 69888);                   /* N - 1 = 70000, an ulp is 256 */
    float *const x = (float *)(void *)data;
    for (int64_t i = 0; i < N; i++) x[i] = i == N / 2 ? 0x1p30f : 1;
    assert_true(sum_of(tensor_1d(x, F32, N)) == 0x1p60 + 69888);
}

static void test_extremes(void **state)
{
    (void)state;
    float smallest[3] = { 0x1p-149f, -0x1p-149f, 0 }, largest[2] = { 0x1.fffffep127f, 1 };
    double tiny[2] = { 0x1p-537, 0x1p-537 }, huge[2] = { 0x1p511, 0x1p511 }, too_large[1] = { 0x1p600 };
    assert_true(sum_of(tensor_1d(smallest, F32, 3)) == 0x1p-297);
    assert_true(sum_of(tensor_1d(largest, F32, 2)) == (double)largest[0] * (double)largest[0]);
    assert_true(sum_of(tensor_1d(tiny, F64, 2)) == 0x1p-1073);
    assert_true(sum_of(tensor_1d(huge, F64, 2)) == 0x1p1023);
    assert_true(isinf(sum_of(tensor_1d(too_large, F64, 1))));
    assert_true(sum_of(tensor_1d(data, F32, 0)) == 0);
}

/* The norm says when a gradient has overflowed, also after it has been sent. */
static void test_not_finite(void **state)
{
    (void)state;
    for (enum dtype t = 0; t < DTYPE_COUNT; t++) {
        if (dtype_unit(t) == 0 || t == EXACT) continue;             /* such a sum has no infinity: fixed_sum.h */
        struct tensor x = scattered(t, N);
        tensor_set(x, 31, -INFINITY);
        assert_true(isinf(sum_of(x)) && isinf(sum_in_parts(x, 4)));
        tensor_set(x, N - 2, NAN);
        assert_true(isnan(sum_of(x)) && isnan(sum_in_parts(x, 4)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut), cmocka_unit_test(test_rounds_once),
        cmocka_unit_test(test_nothing_is_lost), cmocka_unit_test(test_extremes),
            cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests_name("exact sums", tests, NULL, NULL);
}
