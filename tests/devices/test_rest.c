/* test_rest.c -- what is left of gradients without the directions in which rounding moves them by much.
 * Runs, and ACTUAL, are made: ours, and much of two directions that both gradients share, and little of all others.
 */
#include "emulated_devices/check/report/rest.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

enum { LARGE = 60, SMALL = 4, ALL = LARGE + SMALL };

/* From -1 to 1. */
static double drawn(uint32_t stream, uint32_t n)
{
    const uint32_t counter[4] = { n, stream, 0, 0 }, key[2] = { 3, 5 };
    uint32_t word[4];
    philox4x32(counter, key, word);
    return (double)word[0] / 0x1p31 - 1;
}

/* Both gradients of ours are 3 on the average; the second is a thousandth of the first. */
static double scale_of(int i) { return i < LARGE ? 1 : 1e-3; }

struct case_of { double ours[ALL], have[ALL], apart[REST_RUNS][ALL]; struct own_rest rest[2]; };

/* How far a run is from ours in one place: `much` of each direction, and `little`. */
static double moved(uint32_t run, int i, double much, double little)
{
    return scale_of(i) * (much * drawn(run, 1000) * drawn(200, (uint32_t)i) +
                          much * drawn(run, 1001) * drawn(201, (uint32_t)i) + little * drawn(run, (uint32_t)i));
}

static void make(struct case_of *c, double much, double little)
{
    for (int i = 0; i < ALL; i++) {
        c->ours[i] = scale_of(i) * (3 + drawn(100, (uint32_t)i));
        for (uint32_t k = 0; k < REST_RUNS; k++) c->apart[k][i] = moved(k, i, much, little);
        c->have[i] = c->ours[i] + moved(REST_RUNS, i, much, little / 4);
    }
}

static void find(struct case_of *c)
{
    struct error err;
    double *apart[REST_RUNS];
    const struct rest_part part[2] = { { c->ours, c->have, LARGE, &c->rest[0] },
                                       { c->ours + LARGE, c->have + LARGE, SMALL, &c->rest[1] } };
    for (int k = 0; k < REST_RUNS; k++) apart[k] = c->apart[k];
    assert_int_equal(rest_find(part, 2, apart, &err), OK);
}

static void drop(struct case_of *c) { free(c->rest[0].truth), free(c->rest[1].truth); }

/* A run of a right program is far from ours as a whole, and near in the rest. */
static void what_rounding_moves_is_taken_out(void **state)
{
    struct case_of c;
    (void)state;
    make(&c, 40, 0.3);
    find(&c);
    for (int p = 0; p < 2; p++) {
        assert_non_null(c.rest[p].truth);
        assert_true(c.rest[p].off <= c.rest[p].bound);
        assert_true(c.rest[p].bound < 0.2);
    }
    /* The truth has ACTUAL's part in both directions: its distance is what `off` says. */
    double apart = 0, size = 0;
    for (int i = 0; i < LARGE; i++)
        apart += pow(c.have[i] - c.rest[0].truth[i], 2), size += c.rest[0].truth[i] * c.rest[0].truth[i];
    assert_true(fabs(sqrt(apart / size) - c.rest[0].off) < 1e-12);
    drop(&c);
}

/* Zeros, and a half, of one gradient are no direction of both. */
static void a_wrong_gradient_is_far_in_the_rest(void **state)
{
    static const struct { int first, end, part; double times; } wrong[] = {
        { 0, LARGE, 0, 0 }, { 0, LARGE, 0, 0.5 }, { LARGE, ALL, 1, 0 },
    };
    (void)state;
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        struct case_of c;
        make(&c, 4, 0.03);
        for (int i = wrong[k].first; i < wrong[k].end; i++) c.have[i] *= wrong[k].times;
        find(&c);
        assert_non_null(c.rest[wrong[k].part].truth);
        assert_true(c.rest[wrong[k].part].off > 5 * c.rest[wrong[k].part].bound);
        drop(&c);
    }
}

/* Where rounding moves all directions by as much as ours nothing can be said. */
static void noise_has_no_rest(void **state)
{
    struct case_of c;
    (void)state;
    make(&c, 4, 8);
    find(&c);
    assert_null(c.rest[0].truth);
    assert_null(c.rest[1].truth);
}

/* If ours is a direction in which rounding moves it, zeros leave nothing. */
static void ours_itself_has_no_rest(void **state)
{
    struct case_of c;
    (void)state;
    make(&c, 0, 0.001);
    for (int i = 0; i < ALL; i++) {
        for (uint32_t k = 0; k < REST_RUNS; k++) c.apart[k][i] += 2 * drawn(k, 1000) * c.ours[i] * (i < LARGE);
        if (i < LARGE) c.have[i] = 0;
    }
    find(&c);
    assert_null(c.rest[0].truth);
    drop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_rounding_moves_is_taken_out),
        cmocka_unit_test(a_wrong_gradient_is_far_in_the_rest),
        cmocka_unit_test(noise_has_no_rest),
        cmocka_unit_test(ours_itself_has_no_rest),
    };
    return cmocka_run_group_tests_name("rests of gradients", tests, NULL, NULL);
}
