/* The model of PyTorch's caching allocator: block lists derived by hand from the rules of the released code.
 * tier: check
 */
#include "emulated_devices/device/caching_allocator.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const uint64_t KIB = 1 << 10, MIB = 1 << 20;
static struct caching_allocator a;

static struct caching_block *take(uint64_t bytes, int stream)
{
    struct caching_block *b = caching_allocate(&a, bytes, stream);
    assert_non_null(b);
    return b;
}

static void expect_use(uint64_t allocated, uint64_t reserved)
{
    assert_int_equal(a.now.allocated, allocated);
    assert_int_equal(a.now.reserved, reserved);
}

static int open_plain(void **state) { (void)state; caching_open(&a, false); return 0; }
static int open_growing(void **state) { (void)state; caching_open(&a, true); return 0; }
static int close_all(void **state) { (void)state; caching_close(&a); return 0; }

static void test_requests_are_rounded_to_512(void **state)
{
    (void)state;
    assert_int_equal(caching_size(take(1, 0)), 512);
    assert_int_equal(caching_size(take(512, 0)), 512);
    assert_int_equal(caching_size(take(513, 0)), 1024);
    expect_use(2 * KIB, 2 * MIB);
}

/* 1 MiB is small: two of them fill a segment of 2 MiB.  One byte more is large. */
static void test_small_and_large_have_pools(void **state)
{
    (void)state;
    take(MIB, 0), take(MIB, 0);
    expect_use(2 * MIB, 2 * MIB);
    take(MIB + 1, 0);
    expect_use(3 * MIB + 512, 22 * MIB);
    take(1, 0);
    expect_use(3 * MIB + 1024, 24 * MIB);
}

static void test_segments_have_three_sizes(void **state)
{
    (void)state;
    take(10 * MIB - 1, 0);                              /* 10 MiB when rounded: a segment of its own */
    expect_use(10 * MIB, 10 * MIB);
    take(9 * MIB, 0);                                   /* out of 20 MiB, of which 11 are left */
    expect_use(19 * MIB, 30 * MIB);
    take(11 * MIB + 512, 0);                            /* 12 MiB, of which less than 1 MiB is left: not split */
    expect_use(31 * MIB, 42 * MIB);
    take(12 * MIB + 512, 0);                            /* 14 MiB, of which 2 MiB - 512 bytes are split off */
    expect_use(43 * MIB + 512, 56 * MIB);
}

/* Free are 30, 14 and 14 MiB: a request of 12 takes the first of 14. */
static void test_the_best_fit_is_taken(void **state)
{
    (void)state;
    struct caching_block *large = take(30 * MIB, 0), *first = take(14 * MIB, 0), *second = take(14 * MIB, 0);
    const uint64_t at = caching_address(first);
    caching_free(&a, second), caching_free(&a, large), caching_free(&a, first);
    assert_int_equal(caching_address(take(12 * MIB, 0)), at);
    expect_use(12 * MIB, 58 * MIB);
    assert_int_equal(caching_address(take(2 * MIB, 0)), at + 12 * MIB);         /* what was left of it */
}

/* A segment of 20 MiB has 11 left when 9 are used.  A request of 10 leaves 1 MiB, which is not split off; with 512
 * bytes less the rest is split off. */
static void test_large_blocks_keep_a_small_rest(void **state)
{
    (void)state;
    take(9 * MIB, 0);
    struct caching_block *whole = take(10 * MIB, 0);
    assert_int_equal(caching_size(whole), 11 * MIB);
    expect_use(20 * MIB, 20 * MIB);
    caching_free(&a, whole);
    assert_int_equal(caching_size(take(10 * MIB - 512, 0)), 10 * MIB - 512);
}

static void test_small_blocks_are_split_to_the_end(void **state)
{
    (void)state;
    take(MIB, 0);
    assert_int_equal(caching_size(take(MIB - 512, 0)), MIB - 512);
    take(512, 0);                                       /* the last 512 bytes of the segment */
    expect_use(2 * MIB, 2 * MIB);
}

/* 9, 9 and 2 MiB of one segment are one block of 20 when all are free; two segments never become one. */
static void test_free_neighbours_merge(void **state)
{
    (void)state;
    struct caching_block *left = take(9 * MIB, 0), *right = take(9 * MIB, 0);
    const uint64_t at = caching_address(left);
    caching_free(&a, left), caching_free(&a, right);
    assert_int_equal(caching_address(take(20 * MIB, 0)), at);
    expect_use(20 * MIB, 20 * MIB);
    left = take(10 * MIB, 0), right = take(10 * MIB, 0);
    caching_free(&a, left), caching_free(&a, right);
    take(20 * MIB, 0);
    expect_use(40 * MIB, 60 * MIB);
}

static void test_streams_share_no_blocks(void **state)
{
    (void)state;
    caching_free(&a, take(10 * MIB, 0));
    take(10 * MIB, 1);
    expect_use(10 * MIB, 20 * MIB);
    take(10 * MIB, 0);
    expect_use(20 * MIB, 20 * MIB);
}

static void test_peaks_stay(void **state)
{
    (void)state;
    struct caching_block *b = take(30 * MIB, 0);
    caching_free(&a, b);
    expect_use(0, 30 * MIB);
    assert_int_equal(a.peak.allocated, 30 * MIB);
    assert_int_equal(a.peak.reserved, 30 * MIB);
}

/* ---- expandable segments ----------------------------------------------------------------------------------------- */

/* 9 MiB map a page of 20.  25 MiB need 14 beside the 11 that are free at the end: one page more. */
static void test_segments_grow_by_pages(void **state)
{
    (void)state;
    struct caching_block *first = take(9 * MIB, 0), *next = take(25 * MIB, 0);
    expect_use(34 * MIB, 40 * MIB);
    assert_int_equal(caching_address(next), caching_address(first) + 9 * MIB);
    take(1, 0);                                         /* small: a segment of its own, of pages of 2 MiB */
    expect_use(34 * MIB + 512, 42 * MIB);
    take(20 * MIB - 512, 0);                            /* 6 are free at the end: one page more */
    expect_use(54 * MIB, 62 * MIB);
    take(6 * MIB, 0);                                   /* of 6 MiB + 512 bytes: the last 512 are split off */
    expect_use(60 * MIB, 62 * MIB);
}

/* Free are 30 MiB, and 4 at the end, where 3 would fit best: the end counts as large as it may become. */
static void test_the_end_is_taken_last(void **state)
{
    (void)state;
    struct caching_block *hole = take(30 * MIB, 0);
    const uint64_t at = caching_address(hole);
    take(6 * MIB, 0);
    caching_free(&a, hole);
    assert_int_equal(caching_address(take(3 * MIB, 0)), at);
    take(28 * MIB, 0);                                  /* not in the 27 that are left: the end grows from 4 by 40 */
    expect_use(37 * MIB, 80 * MIB);
}

/* A block that merges with the segment's end can grow, too. */
static void test_the_end_merges(void **state)
{
    (void)state;
    struct caching_block *first = take(30 * MIB, 0);
    const uint64_t at = caching_address(first);
    caching_free(&a, first);
    assert_int_equal(caching_address(take(60 * MIB, 0)), at);
    expect_use(60 * MIB, 60 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_requests_are_rounded_to_512, open_plain, close_all),
        cmocka_unit_test_setup_teardown(test_small_and_large_have_pools, open_plain, close_all),
        cmocka_unit_test_setup_teardown(test_segments_have_three_sizes, open_plain, close_all),
        cmocka_unit_test_setup_teardown(test_the_best_fit_is_taken, open_plain, close_all),
        cmocka_unit_test_setup_teardown(test_large_blocks_keep_a_small_rest, open_plain, close_all),
        cmocka_unit_test_setup_teardown(test_small_blocks_are_split_to_the_end, open_plain, close_all),
        cmocka_unit_test_setup_teardown(test_free_neighbours_merge, open_plain, close_all),
        cmocka_unit_test_setup_teardown(test_streams_share_no_blocks, open_plain, close_all),
        cmocka_unit_test_setup_teardown(test_peaks_stay, open_plain, close_all),
        cmocka_unit_test_setup_teardown(test_segments_grow_by_pages, open_growing, close_all),
        cmocka_unit_test_setup_teardown(test_the_end_is_taken_last, open_growing, close_all),
        cmocka_unit_test_setup_teardown(test_the_end_merges, open_growing, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
