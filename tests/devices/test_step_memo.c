/* Times of iterations that follow from others: those on a line of three, and beyond it where times grow as fast as
 * kernels do; all others are not known.
 * tier: check
 */
#include "emulated_devices/serve/step_memo.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { LAYERS = 4 };

/* Flat up to 100, then one layer waits for the kernel, from 200 on all do. */
static int64_t time_of(int64_t kernel)
{
    return 5000 + (kernel > 100 ? kernel - 100 : 0) + (kernel > 200 ? (LAYERS - 1) * (kernel - 200) : 0);
}

static struct step_key key_of(int64_t rows, int64_t asked, int64_t kernel)
{
    return (struct step_key){ rows, asked, kernel, 16 };
}

static void compute(struct step_memo *memo, int64_t rows, int64_t asked, int64_t kernel)
{
    struct step_key key = key_of(rows, asked, kernel);
    step_memo_note(memo, &key, LAYERS, time_of(kernel));
    key.kernel = step_memo_try(memo, &key);
    if (key.kernel > 0) step_memo_tried(memo, &key, time_of(key.kernel));
}

/* Every time that is told is right, and kernels that grow are seldom computed. */
static void test_lines(void **state)
{
    (void)state;
    struct step_memo memo = { 0 };
    int64_t takes, computed = 0;
    assert_true(step_memo_open(&memo));
    for (int64_t kernel = 1; kernel < 1000; kernel++) {
        const struct step_key key = key_of(3, 2, kernel);
        if (step_memo_find(&memo, &key, &takes)) assert_int_equal(takes, time_of(kernel));
        else compute(&memo, 3, 2, kernel), computed++;
    }
    assert_in_range(computed, 4, 60);
    step_memo_close(&memo);
}

/* Known times of some rows say nothing of other rows, nor of more memory beside as many rows. */
static void test_kinds(void **state)
{
    (void)state;
    struct step_memo memo = { 0 };
    int64_t takes;
    assert_true(step_memo_open(&memo));
    for (int64_t kernel = 300; kernel < 303; kernel++) compute(&memo, 8, 2, kernel);
    struct step_key key = key_of(8, 2, 900);
    assert_true(step_memo_find(&memo, &key, &takes)), assert_int_equal(takes, time_of(900));
    key.asked = 3;
    assert_false(step_memo_find(&memo, &key, &takes));
    key.asked = 2, key.rows = 9;
    assert_false(step_memo_find(&memo, &key, &takes));
    key.rows = 8, key.room = 17;
    assert_false(step_memo_find(&memo, &key, &takes));
    const struct step_key wide = { 9, 1, 300, 64 };
    step_memo_note(&memo, &wide, LAYERS, time_of(300));
    assert_true(step_memo_find(&memo, &key, &takes));
    step_memo_close(&memo);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lines), cmocka_unit_test(test_kinds) };
    return cmocka_run_group_tests_name("step memo", tests, NULL, NULL);
}
