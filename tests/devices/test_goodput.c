/* The share of time that makes progress when devices fail: against numbers by hand, every interval in turn, and a
 * simulation that knows nothing of the formula.
 * tier: check
 */
#include "emulated_devices/run/report/goodput.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

enum { JOBS = 24, SEEDS = 12 };

static void near(const char *what, double is, double expected, double by)
{
    if (fabs(is - expected) <= by) return;
    print_error("%s: %.9g, expected %.9g within %.3g\n", what, is, expected, by);
    fail();
}

/* A job drawn by a number; `async` ones have checkpoints that are committed later. */
static struct failing_job job_drawn(uint64_t number, bool async)
{
    const double u[5] = { random_uniform(1, 2, 5 * number), random_uniform(1, 2, 5 * number + 1),
                          random_uniform(1, 2, 5 * number + 2), random_uniform(1, 2, 5 * number + 3),
                          random_uniform(1, 2, 5 * number + 4) };
    return (struct failing_job){ .between = 200 + 2000 * u[0], .restart = 100 * u[1], .step = 0.5 + 4 * u[2],
                                 .held = 5 * u[3] * u[3], .committed = async ? 60 * u[4] : 0 };
}

/* By hand: M = 100, t = 9, d = 1: E = 100 (e^0.1 - 1) = 10.517091808.  With R = 5 and f = 2 it is e^0.07 times that. */
static void test_numbers_by_hand(void **state)
{
    (void)state;
    struct failing_job job = { .between = 100, .step = 3, .held = 1 };
    struct goodput g = goodput_of(&job, 3);
    near("useful", g.useful, 9 / 10.517091807564762, 1e-12);
    near("saving", g.saving, 1 / 10.517091807564762, 1e-12);
    near("restarting", g.restarting, 0, 0);
    near("computing again", g.again, 1 - 10 / 10.517091807564762, 1e-12);
    job.restart = 5, job.committed = 2, g = goodput_of(&job, 3);
    near("useful, with restarts", g.useful, 9 / (10.517091807564762 * 1.0725081812542165), 1e-12);
    near("restarting", g.restarting, 1 - exp(-0.05), 1e-12);
    near("all shares", g.useful + g.saving + g.again + g.restarting, 1, 1e-12);
}

/* A save waits for the one before: 2 s of steps, saves of 1 s that are committed 5 s later, so segments of 5 s. */
static void test_saves_wait_for_each_other(void **state)
{
    (void)state;
    const struct failing_job job = { .between = 1e9, .step = 1, .held = 1, .committed = 5 };
    near("2 of 5 s are steps", goodput_of(&job, 2).useful, 0.4, 1e-6);
    near("3 of 5 s are no steps", goodput_of(&job, 2).saving, 0.6, 1e-6);
    near("4 of 5 s are steps", goodput_of(&job, 4).useful, 0.8, 1e-6);
    near("8 of 9 s are steps", goodput_of(&job, 8).useful, 8.0 / 9, 1e-6);
}

static void test_best_is_best_of_all(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 2 * JOBS; n++) {
        const struct failing_job job = job_drawn(n, n % 2 == 1);
        int64_t best = 1;
        for (int64_t every = 2; every < 1500; every++)
            if (goodput_of(&job, every).useful > goodput_of(&job, best).useful) best = every;
        if (goodput_best(&job) != best) {
            print_error("job %d: every %lld steps, but %lld are best\n", (int)n, (long long)goodput_best(&job),
                        (long long)best);
            fail();
        }
    }
}

/* Young's and Daly's rules are near the best interval where saves are short beside the time between failures. */
static void test_rules(void **state)
{
    (void)state;
    const struct failing_job job = { .between = 3600, .step = 0.01, .held = 2 };
    near("Young", goodput_young(&job), 120, 1e-9);
    near("Daly", goodput_daly(&job), 120 * (1 + sqrt(2 / 7200.0) / 3 + 2 / 7200.0 / 9) - 2, 1e-9);
    near("best", (double)goodput_best(&job) * job.step, goodput_daly(&job), 0.05);
    const struct failing_job hopeless = { .between = 10, .step = 1, .held = 30 };
    near("Daly, with saves longer than twice the time between failures", goodput_daly(&hopeless), 10, 0);
}

/* The mean of some seeds is within five standard errors of the expected share, for each share. */
static void simulated(const struct failing_job *job, int64_t every, int number)
{
    const struct goodput expected = goodput_of(job, every);
    const double of[3] = { expected.useful, expected.saving, expected.restarting };
    double sum[3] = { 0 }, squares[3] = { 0 };
    static const char *const names[3] = { "useful", "saving", "restarting" };
    const int64_t steps = every * (int64_t)ceil(400 * job->between / ((double)every * job->step));
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        int64_t failures;
        const struct goodput g = goodput_simulate(job, every, steps, seed, &failures);
        const double is[3] = { g.useful, g.saving, g.restarting };
        assert_true(failures > 100);
        near("all simulated shares", g.useful + g.saving + g.again + g.restarting, 1, 1e-9);
        for (int i = 0; i < 3; i++) sum[i] += is[i], squares[i] += is[i] * is[i];
    }
    for (int i = 0; i < 3; i++) {
        char what[120];
        const double mean = sum[i] / SEEDS, deviation = sqrt(fmax(0, squares[i] / SEEDS - mean * mean));
        snprintf(what, sizeof what, "job %d, a checkpoint every %d steps, simulated share %s", number, (int)every,
                 names[i]);
        near(what, mean, of[i], 5 * deviation / sqrt(SEEDS - 1) + 2e-4);
    }
}

static void test_simulation_agrees(void **state)
{
    (void)state;
    for (int n = 0; n < JOBS; n++) {
        const struct failing_job job = job_drawn((uint64_t)n, n % 2 == 1);
        simulated(&job, goodput_best(&job), n);
        simulated(&job, 1 + n, n);
    }
}

/* Restarts that take 80 times as long as the time between failures never end: the simulation does. */
static void test_without_progress(void **state)
{
    (void)state;
    const struct failing_job job = { .between = 1, .restart = 80, .step = 1, .held = 1 };
    const struct goodput g = goodput_simulate(&job, 10, 1000, 1, NULL);
    assert_true(g.useful < 0.01 && g.restarting > 0.9);
    assert_true(goodput_of(&job, 10).useful < 1e-30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_by_hand), cmocka_unit_test(test_saves_wait_for_each_other),
        cmocka_unit_test(test_best_is_best_of_all), cmocka_unit_test(test_rules),
        cmocka_unit_test(test_simulation_agrees), cmocka_unit_test(test_without_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
