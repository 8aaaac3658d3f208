/* Replicas for tasks of different size: the published numbers, and the best of all divisions by brute force.
 * tier: check
 */
#include "emulated_devices/plan/elastic.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { TASKS = 4 };

static void test_published(void **state)
{
    static const int64_t batch[TASKS] = { 512, 256, 128, 128 };
    static const int want[TASKS] = { 4, 2, 1, 1 };
    int replicas[TASKS];
    struct error err;
    (void)state;
    assert_int_equal(elastic_replicas(batch, TASKS, 8, replicas, &err), OK);
    assert_memory_equal(replicas, want, sizeof want);
    assert_int_equal(elastic_most(batch, TASKS, replicas), 128);
    assert_int_equal(elastic_replicas(batch, TASKS, TASKS, replicas, &err), OK);
    assert_int_equal(elastic_most(batch, TASKS, replicas), 512);
    assert_int_equal(elastic_replicas(batch, TASKS, 3, replicas, &err), ERR_USAGE);
}

/* The least of the largest batches over all divisions of the devices, tasks t and on. */
static int64_t best(const int64_t *batch, int t, int devices)
{
    int64_t least = INT64_MAX;
    if (t == TASKS - 1) return (batch[t] + devices - 1) / devices;
    for (int r = 1; r <= devices - (TASKS - 1 - t); r++) {
        const int64_t own = (batch[t] + r - 1) / r, rest = best(batch, t + 1, devices - r);
        const int64_t most = own > rest ? own : rest;
        if (most < least) least = most;
    }
    return least;
}

static void test_no_division_is_better(void **state)
{
    (void)state;
    for (int64_t seed = 1; seed < 60; seed++)
        for (int devices = TASKS; devices < 14; devices++) {
            const int64_t batch[TASKS] = { seed * 7 % 31, seed * 13 % 97, seed % 5, seed * seed % 53 };
            int replicas[TASKS], sum = 0;
            struct error err;
            assert_int_equal(elastic_replicas(batch, TASKS, devices, replicas, &err), OK);
            for (int t = 0; t < TASKS; t++) sum += replicas[t];
            assert_int_equal(sum, devices);
            assert_int_equal(elastic_most(batch, TASKS, replicas), best(batch, 0, devices));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_no_division_is_better),
    };
    return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
