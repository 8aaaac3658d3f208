/* The bubble rates of P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, table 5, from the times of
 * table 6.
 * tier: check
 *
 * Twelve settings, six schedules (published.c); every printed digit.
 */
#include "emulated_devices/schemes/pipeline/published.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static double bubble(const struct published_setting *r, enum published_schedule which)
{
    struct error err;
    double rate = NAN;
    if (published_bubble(r, which, &rate, &err) != OK) fail_msg("%s: %s", published_schedule_name[which], err.text);
    return rate;
}

static void check_column(enum published_schedule which)
{
    for (int i = 0; i < PUBLISHED_SETTINGS; i++) {
        const struct published_setting *r = &published_settings[i];
        const double want = r->bubble[which], got = published_digits(bubble(r, which));
        if (!(fabs(got - want) < 1e-9))
            fail_msg("%s, %s, P=%d M=%d: bubble rate %.4f, published %.4f", published_schedule_name[which], r->model,
                     r->P, r->M, got, want);
    }
}

static void test_1f1b(void **state) { (void)state; check_column(PUBLISHED_1F1B); }
static void test_zb_h1(void **state) { (void)state; check_column(PUBLISHED_ZB_H1); }
static void test_zb_h2(void **state) { (void)state; check_column(PUBLISHED_ZB_H2); }
static void test_zb_1p(void **state) { (void)state; check_column(PUBLISHED_ZB_1P); }
static void test_zb_2p(void **state) { (void)state; check_column(PUBLISHED_ZB_2P); }

/* What the search may use: the activations of P, or 2P, microbatches. */
static void check_memory(const struct published_setting *r, enum published_schedule which, int times_P)
{
    struct schedule s;
    struct error err;
    const struct schedule_request q = published_request(r, which);
    if (schedule_make(&s, published_schedule_name[which], &q, &err) != OK)
        fail_msg("%s: %s", published_schedule_name[which], err.text);
    for (int d = 0; d < r->P; d++)
        assert_true(schedule_peak_memory(&s, d, q.activation, q.kept_for_weight) <= times_P * r->P * q.activation);
    schedule_free(&s);
}

static void test_search_keeps_to_its_memory(void **state)
{
    (void)state;
    for (int i = 0; i < PUBLISHED_SETTINGS; i++) {
        check_memory(&published_settings[i], PUBLISHED_ZB_1P, 1);
        check_memory(&published_settings[i], PUBLISHED_ZB_2P, 2);
    }
}

/* The published interleaved rates are a closed form with (2vP-P-2) hops.  A message that a device really waits for
 * costs a hop each time, 2(vP-1) of them; so the timer must be at or above the table, and at it when
 * messages are free. */
static void test_interleaved(void **state)
{
    (void)state;
    for (int i = 0; i < PUBLISHED_SETTINGS; i++) {
        const struct published_setting *r = &published_settings[i];
        const double got = published_digits(published_interleaved_formula(r)), want = r->bubble[PUBLISHED_INTERLEAVED];
        if (!(fabs(got - want) < 1e-9))
            fail_msg("interleaved, %s, M=%d: closed form %.4f, published %.4f", r->model, r->M, got, want);
        assert_true(published_digits(bubble(r, PUBLISHED_INTERLEAVED)) >= want);

        struct schedule s;
        struct timing t;
        struct error err;
        if (schedule_make(&s, "interleaved",
                          &(struct schedule_request){ .devices = r->P, .micros = r->M, .chunks = r->v }, &err) != OK)
            fail_msg("%s", err.text);
        int64_t *room = malloc(3 * (size_t)s.stages * sizeof *room);
        assert_non_null(room);
        for (int free_messages = 0; free_messages < 2; free_messages++) {
            const int64_t comm = free_messages ? 0 : r->v * r->comm;      /* times of a chunk: everything times v */
            const struct schedule_times times = uniform_times(s.stages, r->f, r->i, r->w, comm, room);
            assert_int_equal(schedule_time(&t, &s, &times, &err), OK);
            const int64_t hops = free_messages ? 0 : 2 * ((int64_t)r->v * r->P - 1);
            const int64_t want = (r->f + r->i + r->w) * ((int64_t)r->M * r->v + r->P - 1) + hops * comm;
            if (t.span != want)
                fail_msg("interleaved, %s, M=%d: span %lld, expected %lld", r->model, r->M, (long long)t.span,
                         (long long)want);
            timing_free(&t);
        }
        free(room);
        schedule_free(&s);
    }
}

/* Bubbles given as formulas; a paired one counts a forward and a backward side by side as one action,
 * F & B as long as F + B. */
static void test_formulas(void **state)
{
    (void)state;
    static const struct { int64_t f, i, w; } times[] = { { 6, 6, 6 }, { 4, 12, 2 }, { 6, 8, 6 }, { 8, 18, 4 } };
    for (const struct published_formula *f = published_formulas; f->schedule; f++)
        for (int P = 4; P <= 8; P += 2)
            for (int M = 2 * P; M <= 4 * P; M += P)
                for (size_t k = 0; k < (f->equal_times ? 1 : sizeof times / sizeof times[0]); k++) {
                    const struct published_case c = { P,          M,          f->chunks ? f->chunks : 1,
                                                      times[k].f, times[k].i, times[k].w };
                    struct error err;
                    int64_t ours = -1;
                    if (published_idle(f, c, &ours, &err) != OK) fail_msg("%s: %s", f->schedule, err.text);
                    const int64_t want = f->idle(c);
                    if (ours != want && !(f->at_most && ours <= want))
                        fail_msg("%s P=%d M=%d F=%d I=%d W=%d: idle %lld, published %s = %lld", f->schedule, P, M,
                                 (int)c.F, (int)c.I, (int)c.W, (long long)ours, f->formula, (long long)want);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1f1b),  cmocka_unit_test(test_interleaved), cmocka_unit_test(test_zb_h1),
            cmocka_unit_test(test_zb_h2),
        cmocka_unit_test(test_zb_1p), cmocka_unit_test(test_zb_2p),      
        cmocka_unit_test(test_search_keeps_to_its_memory), cmocka_unit_test(test_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
