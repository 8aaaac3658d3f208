/* Paths over leaves and spines: assigned together they reach the bound for every draw, each flow has one spine, and the
 * time of all flows is that of the busiest link.
 */
#include "emulated_devices/bench/paths.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

static struct error err;

static void test_bound_is_reached(void **state)
{
    static const struct clos clos[] = { { 8, 8, 8 }, { 2, 3, 2 }, { 5, 7, 4 }, { 16, 4, 3 }, { 3, 16, 16 },
                                        { 9, 9, 1 } };
    static struct path_flow flow[512];
    int worse = 0;
    (void)state;
    for (size_t c = 0; c < sizeof clos / sizeof *clos; c++)
        for (uint64_t seed = 0; seed < 40; seed++) {
            const int hosts = clos[c].leaves * clos[c].hosts;
            const int flows = paths_rings(&clos[c], seed % 2 == 0 || hosts % 3 != 0 || hosts < 6 ? 1 : 3, seed, flow);
            paths_hash(&clos[c], flow, flows);
            const int least = paths_least(&clos[c], flow, flows), hashed = paths_busiest(&clos[c], flow, flows);
            assert_int_equal(paths_assign(&clos[c], flow, flows, &err), OK);
            for (int i = 0; i < flows; i++) assert_in_range(flow[i].spine, 0, clos[c].spines - 1);
            const int assigned = paths_busiest(&clos[c], flow, flows);
            if (assigned != least)
                fail_msg("%d leaves of %d hosts, %d spines, seed %d: a link has %d flows; %d is the least there can be",
                         clos[c].leaves, clos[c].hosts, clos[c].spines, (int)seed, assigned, least);
            assert_true(hashed >= least);
            worse += hashed > least;
        }
    assert_true(worse > 100);
}

/* Equal flows that start together: the busiest link, which all of its flows share, is the last to be done. */
static void test_time_is_that_of_the_busiest_link(void **state)
{
    const struct clos clos = { 4, 4, 4 };
    struct path_flow flow[16];
    picoseconds time;
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const int flows = paths_rings(&clos, 1, seed, flow);
        for (int assigned = 0; assigned < 2; assigned++) {
            if (assigned) assert_int_equal(paths_assign(&clos, flow, flows, &err), OK);
            else paths_hash(&clos, flow, flows);
            assert_int_equal(paths_time(&clos, flow, flows, 1000000, 1000, &time, &err), OK);
            /* A megabyte at a gigabyte a second, for each flow on the link. */
            const double expected = 1e9 * paths_busiest(&clos, flow, flows);
            if ((double)time < 0.999 * expected || (double)time > 1.001 * expected)
                fail_msg("seed %d, %s: %.0f ps, %.0f expected", (int)seed, assigned ? "assigned" : "hashed",
                         (double)time, expected);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bound_is_reached),
                                        cmocka_unit_test(test_time_is_that_of_the_busiest_link) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
