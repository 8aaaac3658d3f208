/* Whether `orrery bench step` sees that others use the machine: in times that are made up here.
 * tier: check
 */
#include "emulated_devices/bench/step.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct step_pace rounds_of(double first, double second, double third, double processor)
{
    struct step_pace pace = { .rounds_alone = 3, .gemm = { first, second, third },
                              .gemm_processor = { processor, processor, processor } };
    return pace;
}

static void expect_noise(double first, double second, double third, double processor, int threads, bool noisy)
{
    const struct step_pace pace = rounds_of(first, second, third, processor);
    const struct step_noise noise = step_noise(&pace, threads);
    if (noise.noisy != noisy)
        fail_msg("rounds of %g, %g and %g s with %g s of %d processors: spread %g, share %g, and %s noisy", first,
                 second,
                 third, processor, threads, noise.spread, noise.share, noise.noisy ? "" : "not");
}

static void test_noise(void **state)
{
    (void)state;
    expect_noise(1, 1.05, 1.02, 1.99, 2, false);        /* alone on two cores */
    expect_noise(1, 1.05, 2.1, 1.99, 2, true);          /* one round beside another program */
    expect_noise(2, 2, 2, 2, 2, true);                  /* a neighbour in all rounds has half of the cores */
    expect_noise(2, 2, 2, 0.1, 0, false);               /* a GPU computes: the share says nothing */
    expect_noise(1, 1.3, 1, 0.1, 0, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_noise) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
