/* The bubble rates of P. Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, table 5, from the times of
 * table 6.
 * tier: check
 *
 * Twelve settings, six schedules (golden/published/zero-bubble.txt); every printed digit.
 */
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct claims claims;
static const struct claim *claim;       /* in work */
static struct published_setting setting;        /* of this claim */
static const char *schedule;
static bool formula;

static int read_claims(void **state)
{
    struct error err;
    (void)state;
    return claims_find(&claims, "zero-bubble", NULL, &err) != OK;
}

static int free_claims(void **state)
{
    (void)state;
    claims_free(&claims);
    return 0;
}

/* Take the next claim of a schedule, or of any with NULL.  @return false: there is none. */
static bool next_claim(const char *name, int *at)
{
    struct error err;
    for (; *at < claims.count; ++*at) {
        claim = &claims.claim[*at];
        if (claim_bubble(claim, &setting, &schedule, &formula, &err) != OK) fail_msg("%s", err.text);
        if (strcmp(schedule, name) == 0) return ++*at, true;
    }
    return false;
}

static double bubble(void)
{
    struct error err;
    double rate = NAN;
    if (published_bubble(&setting, schedule, &rate, &err) != OK) fail_msg("%s: %s", schedule, err.text);
    return rate;
}

static void check_column(const char *name)
{
    int settings = 0;
    for (int at = 0; next_claim(name, &at); settings++) {
        const double want = claim->published, got = published_digits(bubble());
        if (!(fabs(got - want) < 1e-9)) fail_msg("%s: bubble rate %.4f, published %.4f", claim->what, got, want);
    }
    assert_int_equal(settings, 12);
}

static void test_1f1b(void **state) { (void)state; check_column("1f1b"); }
static void test_zb_h1(void **state) { (void)state; check_column("zb-h1"); }
static void test_zb_h2(void **state) { (void)state; check_column("zb-h2"); }
static void test_zb_1p(void **state) { (void)state; check_column("zb-1p"); }
static void test_zb_2p(void **state) { (void)state; check_column("zb-2p"); }

/* What the search may use: the activations of P, or 2P, microbatches. */
static void check_memory(const char *name, int times_P)
{
    struct error err;
    for (int at = 0; next_claim(name, &at);) {
        struct schedule s;
        const struct schedule_request q = published_request(&setting, schedule);
        if (schedule_make(&s, schedule, &q, &err) != OK) fail_msg("%s: %s", schedule, err.text);
        for (int d = 0; d < setting.P; d++)
            assert_true(schedule_peak_memory(&s, d, q.activation, q.kept_for_weight) <=
                        times_P * setting.P * q.activation);
        schedule_free(&s);
    }
}

static void test_search_keeps_to_its_memory(void **state)
{
    (void)state;
    check_memory("zb-1p", 1);
    check_memory("zb-2p", 2);
}

/* The published interleaved rates are a closed form with (2vP-P-2) hops.  A message that a device really waits for
 * costs a hop each time, 2(vP-1) of them; so the timer must be at or above the table, and at it when
 * messages are free. */
static void test_interleaved(void **state)
{
    (void)state;
    for (int at = 0; next_claim("interleaved", &at);) {
        const struct published_setting *r = &setting;
        const double got = published_digits(published_interleaved_formula(r)), want = claim->published;
        if (!(fabs(got - want) < 1e-9)) fail_msg("%s: closed form %.4f, published %.4f", claim->what, got, want);
        assert_true(formula && published_digits(bubble()) >= want);

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
                fail_msg("%s: span %lld, expected %lld", claim->what, (long long)t.span, (long long)want);
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
    return cmocka_run_group_tests(tests, read_claims, free_claims);
}
