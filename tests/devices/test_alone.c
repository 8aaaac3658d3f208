/* The virtual time of one device for a plan's batch, computed without numbers: that of a real run on one device. */
#include "emulated_devices/train/dry_run/alone.h"
#include "tests/devices/batches.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/params.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct error err;
#define MUST(call) do { if ((call) != OK) fail_msg("%s", err.text); } while (0)

/* The clock of one device that computes with numbers, after the step of a plan. */
static picoseconds run(struct plan p)
{
    struct trainer t;
    struct step_result result;
    struct device device;
    struct comm comm;
    MUST(plan_check(&p, &err));
    MUST(device_open(&device, backend_find("cpu"), p.dtype, 0, &err));
    MUST(comm_alone(&comm, &device, &err));
    MUST(trainer_open(&t, &p, &comm, (struct batch_source){ fill_counting, &p }, &err));
    clock_restart(&device.clock, p.cluster, p.dtype);
    MUST(trainer_gradients(&t, &result, &err));
    MUST(trainer_update(&t, &result, &err));
    trainer_close(&t);
    const picoseconds now = device.clock.now;
    comm_alone_close(&comm), device_close(&device);
    return now;
}

/* Whatever the plan's mesh, microbatches and schemes. */
static void test_equals_a_run_on_one_device(void **state)
{
    static const int mesh[][3] = { { 1, 1, 1 }, { 2, 1, 1 }, { 1, 3, 1 }, { 2, 1, 2 } };
    struct cluster toy;
    (void)state;
    MUST(cluster_find(&toy, CLUSTER_USUAL, &err));
    for (size_t k = 0; k < sizeof mesh / sizeof *mesh; k++) {
        struct plan one = case_plan(1, 1, 1), p;
        picoseconds alone = 0;
        uint64_t kept = 0;
        one.cluster = &toy, one.dtype = k == 1 ? BF16 : F32, one.micros = 1;
        if (k == 2) one.optimizer = optimizers[1], one.hyper = one.optimizer->usual;
        p = case_plan(mesh[k][0], mesh[k][1], mesh[k][2]);
        p.model = one.model, p.cluster = &toy, p.dtype = one.dtype, p.optimizer = one.optimizer, p.hyper = one.hyper;
        p.recompute = k == 3 ? "full" : NULL, p.B = one.B;
        MUST(plan_check(&p, &err));
        MUST(alone_step_time(&p, &alone, &kept, &err));
        if (k == 0) assert_int_equal(kept, 8 * model_elements(&p.model));       /* fp32, and SGD keeps nothing */
        const picoseconds real = run(one);
        if (alone <= 0 || alone != real)
            fail_msg("mesh %zu: alone_step_time says %lld ps, a run on one device takes %lld", k, (long long)alone,
                     (long long)real);
    }
}

static void test_refusals(void **state)
{
    struct cluster toy;
    picoseconds alone;
    uint64_t kept;
    (void)state;
    MUST(cluster_find(&toy, CLUSTER_USUAL, &err));
    struct plan p = case_plan(1, 1, 1);
    p.cluster = &toy, p.optimizer = &no_optimizer;
    assert_int_equal(alone_step_time(&p, &alone, &kept, &err), ERR_PLAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_equals_a_run_on_one_device),
                                        cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
