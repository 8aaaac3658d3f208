/* The collectives whose right answer every member knows (exact.h), held to answers worked out by hand.
 * tier: check
 */
#include "emulated_devices/verify/cases/exact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { P = 3, COUNT = 4, MOST = P * COUNT };    /* blocks of 2, 1 and 1 elements */

/* Member m gives (31 m + 7 i) mod 61 - 30: -30, -23, -16, -9, ...; 1, 8, 15, 22, ...;
 * then 62 is 1 again, so -29, -22, -15, -8, ... */
static const double given[P][MOST] = {
    { -30, -23, -16, -9, -2, 5, 12, 19, 26, -28, -21, -14 },
    { 1, 8, 15, 22, 29, -25, -18, -11, -4, 3, 10, 17 },
    { -29, -22, -15, -8, -1, 6, 13, 20, 27, -27, -20, -13 },
};
static const double sum[COUNT] = { -58, -37, -16, 5 }, of_two[COUNT] = { -29, -15, -1, 13 };

static const struct {
    enum operation operation;
    int root, in,
        out[P]; /* what goes in: all elements of each (COUNT), all for everybody (MOST), those of a block (-1), or
                                           the root's (0); what comes out, in elements */
    double result[P][MOST];
} calls[] = {
    { BROADCAST, 1, 0, { 4, 4, 4 }, { { 1, 8, 15, 22 }, { 1, 8, 15, 22 }, { 1, 8, 15, 22 } } },
    { SCATTER, 2, 0, { 2, 1, 1 }, { { -29, -22 }, { -15 }, { -8 } } },
    { GATHER, 1, -1, { 0, 4, 0 }, { { 0 }, { -30, -23, -16, -9 }, { 0 } } },
    { ALLGATHER, 0, -1, { 4, 4, 4 }, { { -30, -23, -16, -9 }, { -30, -23, -16, -9 }, { -30, -23, -16, -9 } } },
    { REDUCE, 2, COUNT, { 0, 0, 4 }, { { 0 }, { 0 }, { -58, -37, -16, 5 } } },
    { ALLREDUCE, 0, COUNT, { 4, 4, 4 }, { { -58, -37, -16, 5 }, { -58, -37, -16, 5 }, { -58, -37, -16, 5 } } },
    { REDUCE_SCATTER, 0, COUNT, { 2, 1, 1 }, { { -58, -37 }, { -16 }, { 5 } } },
    { SCAN, 0, COUNT, { 4, 4, 4 }, { { -30, -23, -16, -9 }, { -29, -15, -1, 13 }, { -58, -37, -16, 5 } } },
    { ALLTOALL, 0, MOST, { 12, 12, 12 }, {
        { -30, -23, -16, -9, 1, 8, 15, 22, -29, -22, -15, -8 },
        { -2, 5, 12, 19, 29, -25, -18, -11, -1, 6, 13, 20 },
        { 26, -28, -21, -14, -4, 3, 10, 17, 27, -27, -20, -13 } } },
    { BARRIER, 0, -2, { 0, 0, 0 }, { { 0 }, { 0 }, { 0 } } },
};

static int64_t input_length(int in, int root, int rank)
{
    if (in == 0) return rank == root ? COUNT : 0;
    return in == -1 ? rank == 0 ? 2 : 1 : in == -2 ? 0 : in;
}

static void test_by_hand(void **state)
{
    (void)state;
    static const int block[P] = { 0, 2, 3 };
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
        for (int r = 0; r < P; r++) {
            const struct exact_call c = { calls[k].operation, P, r, { .count = COUNT, .root = calls[k].root },
                                          false };
            assert_int_equal(exact_in_length(&c), input_length(calls[k].in, calls[k].root, r));
            assert_int_equal(exact_out_length(&c), calls[k].out[r]);
            for (int64_t i = 0; i < exact_in_length(&c); i++)
                assert_true(exact_in(&c, i) == (calls[k].in == -1 ? given[0][block[r] + i] : given[r][i]));
            for (int64_t i = 0; i < exact_out_length(&c); i++) assert_true(exact_out(&c, i) == calls[k].result[r][i]);
        }
}

/* Lengths by hand: member 0 sends 0, 5, 3; 1 sends 3, 1, 6; 2 sends 6, 4, 2.  Here is what each receives: from whom,
 * the first element there, how many. */
static const int pieces[P][P][3] = {
    { { 0, 0, 0 }, { 1, 0, 3 }, { 2, 0, 6 } }, { { 0, 0, 5 }, { 1, 3, 1 }, { 2, 6, 4 } },
    { { 0, 5, 3 }, { 1, 4, 6 }, { 2, 10, 2 } },
};

static void test_unequal_blocks(void **state)
{
    static const int64_t sent[P] = { 8, 10, 12 }, received[P] = { 9, 10, 11 };
    (void)state;
    for (int r = 0; r < P; r++) {
        const struct exact_call c = { ALLTOALL, P, r, { .count = COUNT }, true };
        int64_t at = 0;
        assert_int_equal(exact_in_length(&c), sent[r]);
        assert_int_equal(exact_out_length(&c), received[r]);
        for (int from = 0; from < P; from++) {
            const int *piece = pieces[r][from];
            assert_int_equal(exact_between(&c, from, r), piece[2]);
            for (int i = 0; i < piece[2]; i++) assert_true(exact_out(&c, at++) == given[piece[0]][piece[1] + i]);
        }
    }
}

/* Thirds, which no format has: rounded once, to the format of the call. */
static void test_averages(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        struct exact_call c = { ALLREDUCE, P, 1, { .count = COUNT, .dtype = F32, .reduction = AVERAGE }, false };
        assert_true(exact_out(&c, i) == (double)((float)sum[i] / (float)P));
        c.args.dtype = F64;
        assert_true(exact_out(&c, i) == sum[i] / P);
        c.operation = SCAN;
        assert_true(exact_out(&c, i) == of_two[i] / P);
    }
}

/* The sums above are those of what is given. */
static void test_the_hand(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        assert_true(of_two[i] == given[0][i] + given[1][i] && sum[i] == of_two[i] + given[2][i]);
        assert_true(calls[7].result[1][i] == of_two[i] && calls[5].result[0][i] == sum[i]);
    }
}

static void test_elements(void **state)
{
    (void)state;
    double wide[3] = { 0 };
    float narrow[3] = { 0 };
    for (int i = 0; i < 3; i++) exact_put(F64, wide, i, i - 7), exact_put(F32, narrow, i, 5 - i);
    for (int i = 0; i < 3; i++) {
        assert_true(wide[i] == i - 7 && narrow[i] == (float)(5 - i));
        assert_true(exact_get(F64, wide, i) == i - 7 && exact_get(F32, narrow, i) == 5 - i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_by_hand), cmocka_unit_test(test_the_hand),
                                        cmocka_unit_test(test_unequal_blocks), cmocka_unit_test(test_averages),
                                        cmocka_unit_test(test_elements) };
    return cmocka_run_group_tests_name("exact", tests, NULL, NULL);
}
