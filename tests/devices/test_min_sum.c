/* The least sum of terms beside all combinations tried, on drawn problems; values that cannot be; and values left out.
 * tier: check
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include "emulated_devices/schemes/sbp/min_sum.h"
#include "ref/numeric/philox.h"
#include <string.h>

enum { VARIABLES = 6, TERMS = 9, MOST_VALUES = 4 };

static int draw(uint64_t seed, uint64_t what, uint64_t at, int below)
{
    return (int)(random_uniform(seed, what, at) * below);
}

/* Terms of one to three variables, a fifth of whose costs cannot be. */
static void make(struct min_sum *m, uint64_t seed)
{
    int values[VARIABLES];
    for (int v = 0; v < VARIABLES; v++) values[v] = 1 + draw(seed, 0, (uint64_t)v, MOST_VALUES);
    min_sum_open(m, VARIABLES, values);
    for (uint64_t t = 0; t < TERMS; t++) {
        int of[3], size = 1;
        for (uint64_t i = 0; i < 3; i++) of[i] = draw(seed, 10 + t, i, VARIABLES);
        struct min_sum_term *term = min_sum_add(m, 1 + draw(seed, 1, t, 3), of);
        assert_non_null(term);
        for (int i = 0; i < term->width; i++) size *= m->values[term->of[i]];
        for (int i = 0; i < size; i++)
            term->cost[i] = draw(seed, 100 + t, (uint64_t)i, 5) == 0 ? MIN_SUM_NEVER
                                                                     : draw(seed, 200 + t, (uint64_t)i, 50);
    }
}

static int64_t sum_of(const struct min_sum *m, const int value[])
{
    int64_t sum = 0;
    for (int t = 0; t < m->terms; t++) sum += m->term[t].cost[min_sum_at(m, &m->term[t], value)];
    return sum;
}

static int64_t try_all(const struct min_sum *m, int value[], int from)
{
    int64_t least = INT64_MAX;
    if (from == m->variables) return sum_of(m, value);
    for (value[from] = 0; value[from] < m->values[from]; value[from]++) {
        const int64_t sum = try_all(m, value, from + 1);
        least = sum < least ? sum : least;
    }
    return least;
}

static void test_all_combinations(void **state)
{
    (void)state;
    int possible = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct min_sum m, again;
        struct error err;
        int value[VARIABLES];
        int64_t least;
        make(&m, seed), make(&again, seed);
        const int64_t want = try_all(&again, value, 0);
        if (seed % 2) assert_false(min_sum_narrow(&m, 1 << 20));        /* leaves out only what cannot be */
        assert_int_equal(min_sum_solve(&m, value, &least, &err), OK);
        assert_true((least >= MIN_SUM_NEVER) == (want >= MIN_SUM_NEVER));
        if (want < MIN_SUM_NEVER) {
            if (least != want || sum_of(&again, value) != want)
                print_error("seed %d: %d, and its values sum up to %d; the least of all is %d\n", (int)seed,
                            (int)least, (int)sum_of(&again, value), (int)want);
            assert_true(least == want && sum_of(&again, value) == want);
            possible++;
        }
        min_sum_close(&m), min_sum_close(&again);
    }
    assert_true(possible > 50);
}

/* With fewer values the sum is that of its values, and not below the least. */
static void test_left_out(void **state)
{
    (void)state;
    int narrowed = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct min_sum m, again;
        struct error err;
        int value[VARIABLES];
        int64_t least;
        make(&m, seed), make(&again, seed);
        const bool left_out = min_sum_narrow(&m, 12);
        narrowed += left_out;
        assert_int_equal(min_sum_solve(&m, value, &least, &err), OK);
        if (least < MIN_SUM_NEVER) {
            int any[VARIABLES];
            assert_int_equal(sum_of(&again, value), least);
            assert_true(left_out ? least >= try_all(&again, any, 0) : least == try_all(&again, any, 0));
        }
        min_sum_close(&m), min_sum_close(&again);
    }
    assert_true(narrowed > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_all_combinations), cmocka_unit_test(test_left_out) };
    return cmocka_run_group_tests_name("least sums", tests, NULL, NULL);
}
