/* Exact sums of many terms, which fp64 adds by two grids (ref/exact/terms.h), are those of terms added one by one: of
 * rows and of columns, for terms of any size.
 * tier: check
 */
#include "ref/exact/terms.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

enum { KINDS = 9, ROUNDS = 40 };

/* Numbers of one kind: of sizes that lie 2^range apart, below a largest one; some are 0. */
static float drawn(int kind, uint64_t i)
{
    static const double range[KINDS] = { 0, 12, 40, 70, 140, 30, 60, 8, 20 };
    static const double highest[KINDS] = { 0, 3, 10, 0, -5, -60, -40, 17, 30 };
    const double size = exp2(highest[kind] - range[kind] * random_uniform(9, 2, i));
    return random_uniform(9, 3, i) < 0.05 ? 0 : (float)((2 * random_uniform(9, 4, i) - 1) * size);
}

static fixed_sum one_by_one(const float *x, int64_t n, int64_t step, double scale)
{
    fixed_sum sum = 0;
    for (int64_t i = 0; i < n; i++) sum = fixed_add(sum, fixed_of((double)x[i * step] * scale));
    return sum;
}

static void test_rows(void **state)
{
    float x[TERMS_AT_ONCE];
    uint64_t at = 0;
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int round = 0; round < ROUNDS; round++) {
            const int64_t n = 1 + (round * 37) % TERMS_AT_ONCE;
            for (int64_t i = 0; i < n; i++) x[i] = drawn(kind, at++);
            for (int down = 0; down <= 40; down += 40)
                if (term_row(x, n, down) != one_by_one(x, n, 1, exp2(-down)))
                    fail_msg("kind %d, %d terms, down %d: another sum", kind, (int)n, down);
        }
}

static void test_columns(void **state)
{
    static float x[TERMS_AT_ONCE * TERM_COLUMNS];
    fixed_sum sums[TERM_COLUMNS], want[TERM_COLUMNS];
    uint64_t at = 1 << 20;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t rows = 1 + (round * 53) % TERMS_AT_ONCE, width = 1 + (round * 29) % TERM_COLUMNS;
        for (int64_t i = 0; i < TERMS_AT_ONCE * TERM_COLUMNS; i++) x[i] = drawn((int)(i % TERM_COLUMNS) % KINDS, at++);
        for (int64_t d = 0; d < width; d++) {
            sums[d] = want[d] = fixed_of(0.3 * (double)d);
            want[d] = fixed_add(want[d], one_by_one(x + d, rows, TERM_COLUMNS, 1));
        }
        term_columns(sums, x, rows, width);
        for (int64_t d = 0; d < width; d++)
            if (sums[d] != want[d]) fail_msg("column %d of %d rows: another sum", (int)d, (int)rows);
    }
}

/* Ties at half a unit of sums, a number far below all others, the largest terms, and numbers that are none. */
static void test_hard_rows(void **state)
{
    static const float row[][4] = {
        { 0x1p-101f, 0x3p-101f, 0x5p-101f, -0x1p-101f }, { 1, 0x1p-101f, 0x3p-101f, -0x7p-101f },
        { 0x1p10f, 0x1.000002p-70f, 0x1p-149f, 1 }, { 0x1.fffffep17f, 0x1.fffffep17f, 0x1.fffffep17f, 0x1p-60f },
        { 0x1p26f, 0x1p26f, -0x1p26f, 1 }, { 1, NAN, 2, 3 }, { 1, -INFINITY, INFINITY, 3 }, { 0, -0.0f, 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        if (term_row(row[i], 4, 0) != one_by_one(row[i], 4, 1, 1)) fail_msg("row %d: another sum", (int)i);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows), cmocka_unit_test(test_columns),
                                        cmocka_unit_test(test_hard_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
