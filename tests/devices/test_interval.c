/* Intervals of one dimension, lists of them without a limit, and parts of lists.
 * tier: check
 */
#include "emulated_devices/device/part.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* Blocks follow one another, cover all, and differ by at most one, the longer ones first. */
static void test_blocks(void **state)
{
    (void)state;
    for (int64_t count = 0; count <= 23; count++)
        for (int parts = 1; parts <= 9; parts++) {
            int64_t end = 0, before = count;
            for (int i = 0; i < parts; i++) {
                const struct interval b = block_at(count, parts, i);
                assert_int_equal(b.first, end);
                assert_true(b.count == count / parts || b.count == count / parts + 1);
                assert_true(b.count <= before);
                end = interval_end(b), before = b.count;
            }
            assert_int_equal(end, count);
        }
}

static void test_meeting(void **state)
{
    (void)state;
    assert_true(
        interval_equal(interval_meet((struct interval){ 2, 5 }, (struct interval){ 4, 9 }), (struct interval){ 4, 3 }));
    assert_int_equal(interval_meet((struct interval){ 2, 2 }, (struct interval){ 4, 9 }).count, 0);
    assert_int_equal(interval_meet((struct interval){ 4, 9 }, (struct interval){ 0, 3 }).count, 0);
    assert_false(interval_equal((struct interval){ 1, 2 }, (struct interval){ 1, 3 }));
}

/* A zigzag over 65 sequences of 10 tokens: two intervals of each, the second of one joined to nothing. */
static void test_long_lists(void **state)
{
    struct intervals s = { 0 };
    (void)state;
    for (int64_t b = 0; b < 65; b++) {
        intervals_add(&s, (struct interval){ 10 * b + 1, 2 });
        intervals_add(&s, (struct interval){ 10 * b + 7, 2 });
    }
    assert_int_equal(s.count, 130);
    assert_int_equal(intervals_total(&s), 260);
    assert_true(interval_equal(s.at[129], (struct interval){ 647, 2 }));
    intervals_free(&s);
    assert_int_equal(s.count, 0);
}

static void test_neighbours_join(void **state)
{
    struct intervals s = intervals_whole(4);
    (void)state;
    intervals_add(&s, (struct interval){ 4, 3 });
    intervals_add(&s, (struct interval){ 9, 0 });
    assert_int_equal(s.count, 1);
    intervals_add(&s, (struct interval){ 0, 2 });                /* behind, though lower: the order is that of memory */
    assert_int_equal(s.count, 2);
    assert_int_equal(intervals_total(&s), 9);
    intervals_free(&s);
}

/* Elements 3 to 7 of 10..13, 20..22, 5: the last of the first, all of the second, and the third. */
static void test_part_of_a_list(void **state)
{
    const struct interval at[] = { { 10, 4 }, { 20, 3 }, { 5, 1 } };
    struct intervals all = { 0 }, part = { 0 };
    (void)state;
    for (int i = 0; i < 3; i++) intervals_add(&all, at[i]);
    intervals_add_part(&part, &all, (struct interval){ 3, 5 });
    assert_int_equal(part.count, 3);
    assert_true(interval_equal(part.at[0], (struct interval){ 13, 1 }));
    assert_true(interval_equal(part.at[1], (struct interval){ 20, 3 }));
    assert_true(interval_equal(part.at[2], (struct interval){ 5, 1 }));
    intervals_free(&all), intervals_free(&part);
}

/* Rows 3, 0 and columns 1..2 of a matrix of 4 x 3, in that order. */
static void test_cutting(void **state)
{
    const int whole[12] = { 0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32 }, want[4] = { 31, 32, 1, 2 };
    struct part p = { .dim = { 4, 3 } };
    int got[4];
    (void)state;
    intervals_add(&p.rows, (struct interval){ 3, 1 });
    intervals_add(&p.rows, (struct interval){ 0, 1 });
    intervals_add(&p.cols, (struct interval){ 1, 2 });
    assert_true(part_made(&p));
    assert_int_equal(part_count(&p), 4);
    part_cut(&p, whole, got, sizeof *got);
    assert_memory_equal(got, want, sizeof want);
    part_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),          cmocka_unit_test(test_meeting),
            cmocka_unit_test(test_long_lists),
        cmocka_unit_test(test_neighbours_join), cmocka_unit_test(test_part_of_a_list), cmocka_unit_test(test_cutting),
    };
    return cmocka_run_group_tests_name("interval", tests, NULL, NULL);
}
