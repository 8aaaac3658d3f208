/* A product and its sum with additions at the memory: the bits of the ring, moves equal to the formulas, and what the
 * paper says of them.
 * tier: check
 */
#include "emulated_devices/bench/schemes/at_memory.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 8, DEPTH = 3, COLUMNS = 5 };

static double *drawn(int64_t count, uint64_t what)
{
    double *const x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) x[i] = random_uniform(7, what, (uint64_t)i) - 0.5;
    return x;
}

/* Chunk c is the sum of the products of devices c+1, c+2, .., c, in this order. */
static void by_hand(const struct at_memory *s, double *const *X, double *const *W, double *Y)
{
    const int64_t n = s->rows / s->devices;
    for (int64_t row = 0; row < s->rows; row++)
        for (int64_t j = 0; j < s->columns; j++) {
            double sum = 0;
            for (int step = 1; step <= s->devices; step++) {
                const int d = (int)(row / n + step) % s->devices;
                double part = 0;
                for (int64_t k = 0; k < s->depth; k++) part += X[d][row * s->depth + k] * W[d][k * s->columns + j];
                sum = step == 1 ? part : sum + part;
            }
            Y[row * s->columns + j] = sum;
        }
}

static void assert_moves(const struct at_memory *s, bool at_memory, const struct memory_moves *counted)
{
    const struct memory_moves want = at_memory_moves(s, at_memory);
    for (int d = 0; d < s->devices; d++)
        if (memcmp(&want, &counted[d], sizeof want) != 0)
            fail_msg("P=%d, at memory %d, device %d: results %llu, read %llu, written %llu; formula %llu, %llu, %llu",
                     s->devices, at_memory, d, (unsigned long long)counted[d].results,
                     (unsigned long long)counted[d].sum_reads, (unsigned long long)counted[d].sum_writes,
                     (unsigned long long)want.results, (unsigned long long)want.sum_reads,
                     (unsigned long long)want.sum_writes);
}

static void test_bits_and_moves(void **state)
{
    (void)state;
    struct error err;
    for (int P = 2; P <= MOST; P++) {
        const struct at_memory s = { P, 6 * P, DEPTH, COLUMNS };
        double *X[MOST], *W[MOST], *Y = drawn(s.rows * s.columns, 1), *want = drawn(s.rows * s.columns, 2);
        struct memory_moves moves[MOST];
        for (int d = 0; d < P; d++)
            X[d] = drawn(s.rows * s.depth, 10 + (uint64_t)d), W[d] = drawn(s.depth * s.columns, 50 + (uint64_t)d);
        by_hand(&s, X, W, want);
        for (int at_memory = 0; at_memory < 2; at_memory++) {
            if (at_memory_run(&s, at_memory, (const double *const *)X, (const double *const *)W, Y, moves, &err) != OK)
                fail_msg("P=%d, at memory %d: %s", P, at_memory, err.text);
            if (memcmp(Y, want, (size_t)(s.rows * s.columns) * sizeof *Y) != 0)
                fail_msg("P=%d, at memory %d: the sum is not the ring's, bit for bit", P, at_memory);
            assert_moves(&s, at_memory, moves);
        }
        for (int d = 0; d < P; d++) free(X[d]), free(W[d]);
        free(Y), free(want);
    }
}

/* The ring alone moves 3 P - 1 chunks, of 4 P - 1 with the product's results; at the memory it is 3 P - 4 together. */
static void test_formulas(void **state)
{
    (void)state;
    const struct at_memory s = { 8, 8, 1, 1 };
    const struct memory_moves apart = at_memory_moves(&s, false), at = at_memory_moves(&s, true);
    assert_int_equal(apart.results + apart.sum_reads + apart.sum_writes, 4 * 8 - 1);
    assert_int_equal(at.results + at.sum_reads + at.sum_writes, 3 * 8 - 4);
    /* T-NLG's attention output on 8 devices: N = 8192, D = 4256, in units of N D / 8 and with 14 of the gather. */
    const struct at_memory layer = { 8, 8192, 532, 4256 };
    const double chunk = 1024.0 * 4256, inputs = (8192.0 + 4256) * 532;
    const double want = 100 * (1 - (20 * chunk + 14 * chunk + inputs) / (31 * chunk + 14 * chunk + inputs));
    assert_true(at_memory_saved(&layer) > want - 1e-9 && at_memory_saved(&layer) < want + 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_and_moves),
        cmocka_unit_test(test_formulas),
    };
    return cmocka_run_group_tests_name("at memory", tests, NULL, NULL);
}
