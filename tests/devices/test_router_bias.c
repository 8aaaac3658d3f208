/* The words for the correction of a router that a step has moved wrongly.
 * Four experts, six sequences of two tokens, two choices of a token; the numbers are written by hand.
 * tier: check
 */
#include "emulated_devices/check/mistakes/router_bias.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

enum { E = 4, N = 12, K = 2 };

/* Loads of the whole batch are 9 6 5 4; each should have 6.  Of the halves they are 6 3 2 1 and 3 3 3 3; of the thirds
 * 4 2 1 1, 3 2 2 1 and 2 2 2 2. */
static const int32_t experts[N * K] = { 0, 1, 0, 2, 0, 1, 0, 3,  0, 1, 0, 2, 0, 1, 3, 2,  0, 1, 2, 3, 0, 1, 3, 2 };
static const double loads[E] = { 9, 6, 5, 4 }, before[E] = { 0.5, -0.25, 0, 0.125 };

static const struct router_rule by_sign = { .biased = true, .bias_update = BIAS_BY_SIGN, .bias_speed = 0.01 },
                                by_share = { .biased = true, .bias_update = BIAS_BY_SHARE, .bias_speed = 0.01 };

/* Make the words for a program whose correction has moved by these numbers times the rate. */
static const char *said(const struct router_rule *rule, const double by[E], int copies, int micros)
{
    static char text[300];
    double right[E], have[E];
    for (int e = 0; e < E; e++) {
        const double lacks = 6 - loads[e];
        right[e] = before[e] + 0.01 * (rule->bias_update == BIAS_BY_SHARE ? lacks / 24 : (lacks > 0) - (lacks < 0));
        have[e] = before[e] + 0.01 * by[e];
    }
    const struct bias_move move = { .rule = rule, .E = E, .columns = E, .k = K, .N = N, .B = 6, .S = 2,
                                    .copies = copies, .micros = micros, .speed = 0.01,
                                    .by_share = rule->bias_update == BIAS_BY_SHARE,
                                    .experts = experts, .loads = loads, .before = before, .right = right, .have = have,
                                    .near = 1e-7 };
    router_bias_explain(&move, text, sizeof text);
    return text;
}

static void the_batch_has_these_loads(void **state)
{
    double all[E] = { 0 };
    (void)state;
    for (int i = 0; i < N * K; i++) all[experts[i]]++;
    for (int e = 0; e < E; e++) assert_true(all[e] == loads[e]);
}

static void each_mistake_has_its_words(void **state)
{
    (void)state;
    assert_string_equal(said(&by_sign, (double[]){ 0, 0, 0, 0 }, 1, 1), "stale: it is not moved");
    assert_non_null(strstr(said(&by_sign, (double[]){ 1, 0, -1, -1 }, 1, 1), "it moves the wrong way"));
    assert_string_equal(said(&by_sign, (double[]){ -2, 0, 2, 2 }, 1, 1), "it is moved twice");
    assert_string_equal(said(&by_sign, (double[]){ -0.1, 0, 0.1, 0.1 }, 1, 1), "its rate is 0.001, not 0.01");
    assert_non_null(strstr(said(&by_sign, (double[]){ -3. / 24, 0, 1. / 24, 2. / 24 }, 1, 1),
                           "by the share of choices"));
    assert_non_null(strstr(said(&by_share, (double[]){ -1, 0, 1, 1 }, 1, 1), "by the sign of what lacks"));
    assert_string_equal(said(&by_sign, (double[]){ 0.3, 0.7, 0, 0 }, 2, 3), "");
}

/* The first of three copies has loads 4 2 1 1 where each should have 2; the second 3 2 2 1; the third 2 2 2 2. */
static void parts_of_the_batch_are_told_apart(void **state)
{
    (void)state;
    assert_non_null(strstr(said(&by_sign, (double[]){ -1, 0, 0, 1 }, 3, 1), "part 2 of 3 of the batch alone"));
    assert_non_null(strstr(said(&by_sign, (double[]){ -2, 0, 1, 2 }, 3, 1),
                           "each of 3 parts of the batch moves it by its own choices, one after the other"));
    assert_non_null(strstr(said(&by_sign, (double[]){ -2. / 3, 0, 1. / 3, 2. / 3 }, 1, 3), "and the mean is taken"));
    /* Without copies or microbatches nobody has a part. */
    assert_string_equal(said(&by_sign, (double[]){ -1, 0, 0, 1 }, 1, 1), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_batch_has_these_loads),
                                        cmocka_unit_test(each_mistake_has_its_words),
                                        cmocka_unit_test(parts_of_the_batch_are_told_apart) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
