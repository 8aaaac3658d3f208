/* Sums that are kept beside their results: whose they are, and when they are not given. */
#include "ref/exact/unrounded.h"
#include "ref/exact/unrounded_rows.h"
#include "ref/numeric/convert.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS = 2, COLS = 3, COUNT = ROWS * COLS };
static float result[COUNT];
static fixed_sum sum[COUNT];

/* A result [2, 3] of sums that fp32 does not hold. */
static struct tensor make(void)
{
    for (int i = 0; i < COUNT; i++) {
        sum[i] = fixed_of(i - 2.5) + 1;
        result[i] = (float)fixed_to_odd(sum[i]);
    }
    return tensor_2d(result, F32, ROWS, COLS);
}

static struct tensor sums_here(void) { return tensor_2d(sum, EXACT, ROWS, COLS); }

static bool has(struct tensor t)
{
    const struct tensor taken = unrounded_take(t);
    free(taken.data);
    return tensor_present(taken);
}

static void test_taken_once(void **state)
{
    (void)state;
    const struct tensor t = make();
    unrounded_note(t, sums_here());
    assert_false(has(t));                               /* nobody has asked */
    unrounded_begin();
    unrounded_note(t, sums_here());
    const struct tensor taken = unrounded_take(t);
    assert_true(taken.dtype == EXACT && tensor_rows(taken) == ROWS && tensor_cols(taken) == COLS);
    assert_memory_equal(taken.data, sum, sizeof sum);
    free(taken.data);
    assert_false(has(t));
    unrounded_end();
}

/* Another result at that place: its sums replace the first, or the numbers say that the sums are old. */
static void test_an_earlier_result(void **state)
{
    (void)state;
    unrounded_begin();
    const struct tensor t = make();
    unrounded_note(t, sums_here());
    result[4] = nextafterf(result[4], 9);
    assert_false(has(t));
    make();
    unrounded_note(t, sums_here());
    assert_false(has(tensor_2d(result, F32, 1, COLS)));
    make();
    unrounded_note(t, sums_here());
    sum[5] += 1;
    unrounded_note(t, sums_here());
    const struct tensor taken = unrounded_take(t);
    assert_memory_equal(taken.data, sum, sizeof sum);
    free(taken.data);
    unrounded_note(t, sums_here());
    unrounded_drop(result);
    assert_false(has(t));
    unrounded_end();
}

/* A quotient is that of both sums; what is taken changes with either. */
static void test_quotients(void **state)
{
    (void)state;
    unrounded_begin();
    fixed_sum first[COUNT];
    for (int which = 0; which < 3; which++) {
        fixed_sum *divisor, *const room = unrounded_room(make(), COLS, &divisor);
        assert_non_null(room);
        for (int row = 0; row < ROWS; row++) divisor[row] = fixed_of(3 + row);
        for (int i = 0; i < COUNT; i++) {
            room[i] = sum[i];
            result[i] = (float)(fixed_to_double(sum[i]) / (3 + i / COLS));
        }
        room[2] += which == 1, divisor[0] += which == 2;
        const struct tensor taken = unrounded_take(tensor_2d(result, F32, ROWS, COLS));
        assert_true(tensor_present(taken));
        for (int i = 0; i < COUNT; i++) {
            if (which == 0) first[i] = fixed_at(taken.data, i);
            const bool moves = (which == 1 && i == 2) || (which == 2 && i < COLS);
            assert_true(fixed_at(taken.data, i) == first[i] + moves);
        }
        free(taken.data);
    }
    unrounded_end();
}

/* Numbers that are rounded once more, to 16 bits, keep the sums; the end of the last check forgets all. */
static void test_moved_and_forgotten(void **state)
{
    (void)state;
    uint16_t narrow[COUNT];
    const struct tensor t = make(), few = tensor_2d(narrow, BF16, ROWS, COLS);
    unrounded_begin(), unrounded_begin();
    unrounded_note(t, sums_here());
    tensor_convert(few, t);
    unrounded_move(few, t.data);
    assert_false(has(t));
    assert_true(has(few));
    unrounded_note(t, sums_here());
    unrounded_end();
    assert_true(has(t));
    unrounded_note(t, sums_here());
    unrounded_end();
    unrounded_begin();
    assert_false(has(t));
    unrounded_end();
}

/* A device has rounded the second row alone; of the first there are old sums.  Both rows are given once there are sums
 * of the whole. */
static void test_rows_of_a_result(void **state)
{
    (void)state;
    int64_t first = 0;
    unrounded_begin();
    const struct tensor t = make(), row = tensor_2d(result + COLS, F32, 1, COLS);
    unrounded_note(tensor_2d(result, F32, 1, COLS), tensor_2d(sum + COLS, EXACT, 1, COLS));
    unrounded_note(row, tensor_2d(sum + COLS, EXACT, 1, COLS));
    struct tensor taken = unrounded_take_rows(t, &first);
    assert_true(taken.dtype == EXACT && tensor_count(taken) == COLS && first == COLS);
    assert_memory_equal(taken.data, sum + COLS, COLS * sizeof *sum);
    free(taken.data);
    assert_false(tensor_present(unrounded_take_rows(t, &first)));
    unrounded_note(row, tensor_2d(sum + COLS, EXACT, 1, COLS));
    unrounded_note(t, sums_here());
    taken = unrounded_take_rows(t, &first);
    assert_true(tensor_count(taken) == COUNT && first == 0);
    assert_memory_equal(taken.data, sum, sizeof sum);
    free(taken.data);
    unrounded_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_taken_once), cmocka_unit_test(test_an_earlier_result),
                                        cmocka_unit_test(test_quotients), cmocka_unit_test(test_moved_and_forgotten),
                                        cmocka_unit_test(test_rows_of_a_result) };
    return cmocka_run_group_tests_name("unrounded", tests, NULL, NULL);
}
