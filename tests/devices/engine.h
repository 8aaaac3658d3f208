/* engine.h -- tests of data parallelism's engine by itself: no model computes, uses of its parts take made-up times.
 *
 *     static const struct model_config even = { ... };         what is sharded, and on what machine: before this header
 *     static const struct cluster machine = { ... };
 *     static double part_flops(int part) { ... }               what one use of a part takes
 *     #include "tests/devices/engine.h"
 *
 *     open_engine((struct data_request){ .scheme = "zero3" });
 *     step_of(2);
 *     close_engine();
 *
 * Tests of devices include this file, such as test_shards.c.  An error fails the test.
 */
#ifndef ORRERY_ENGINE_H
#define ORRERY_ENGINE_H

#include "tests/mpi_cmocka.h"
#include "emulated_devices/schemes/data/data.h"
#include "ref/model/params.h"

static struct device device;
static struct comm comm;
static struct group world, lonely;
static bool own_experts;                        /* each device has experts of its own, which nobody shares */
static struct parameters parameters;
static struct data_parallel dp;
static struct hyperparameters hyper;
static struct error err;

enum { PARTS = 5, MOST_USES = 3 * PARTS };      /* embedding, three blocks, loss */

static void list_parameters(void)
{
    static struct parameter all[64];
    const int n = model_param_count(&even);
    parameters = (struct parameters){ .all = all };
    for (int k = 0; k < 2 * n; k++) {                   /* experts last: they are units of their own */
        const struct param_spec s = model_param(&even, k % n);
        if ((s.expert >= 0) != (k >= n)) continue;
        struct parameter *p = &all[parameters.count++];
        *p = (struct parameter){ .spec = s, .index = k % n, .holders = 1, .apart = own_experts && s.expert >= 0 };
        p->layout = layout_whole(s.ndim, s.dim);
        p->counted = layout_count(&p->layout);
    }
}

static void open_engine(struct data_request q)
{
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    clock_open(&device.clock, &machine, F32);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    assert_int_equal(group_world(&world, &comm, &err), OK);
    assert_int_equal(group_of(&lonely, &comm, &comm.rank, 1, TRAFFIC_EXPERTS, 0, &err), OK);
    list_parameters();
    dp = (struct data_parallel){ .request = q, .config = &even, .device = &device, .group = &world,
                                 .experts = own_experts ? &lonely : NULL, .parameters = &parameters, .hyper = &hyper,
                                 .versions = 1 };
    ASSERT_ALL(data_scheme_find(&dp.scheme, q.scheme, &err) == OK, "%s", err.text);
    assert_int_equal(optimizer_find(&dp.optimizer, "adamw", NULL), OK);
    if (q.infers) dp.optimizer = &no_optimizer;
    hyper = dp.optimizer->usual;
    ASSERT_ALL(data_open(&dp, 7, &err) == OK, "%s", err.text);
}

static void close_engine(void)
{
    data_close(&dp);
    group_close(&lonely);
    group_close(&world);
    comm_close(&comm);
    device_close(&device);
}

static void use(int part, enum pass pass)
{
    enum error_code e = OK;
    const struct op_cost cost = { .flops = part_flops(part) };
    if (pass == PASS_BACKWARD_WEIGHT) {
        e = data_begin_gradient(&dp, part, &err);
        clock_compute(&device.clock, "part", cost);
        if (!e) e = data_end_gradient(&dp, part, &err);
    } else {
        e = data_acquire(&dp, part, &err);
        clock_compute(&device.clock, "part", cost);
        data_release(&dp, part);
    }
    ASSERT_ALL(e == OK, "%s", err.text);
}

static void set_uses(const struct use *list, int n)
{
    struct use *copy = calloc((size_t)n + 1, sizeof *copy);
    assert_non_null(copy);
    for (int i = 0; i < n; i++) copy[i] = list[i];
    free(dp.use);                                       /* of the step before */
    data_set_uses(&dp, copy, n);
}

/* Forward and backward of one microbatch, as a model would. */
static int list_step(struct use list[MOST_USES])
{
    int n = 0;
    for (int part = 0; part < PARTS; part++) list[n++] = (struct use){ .part = part, .pass = PASS_FORWARD };
    for (int part = PARTS - 1; part >= 0; part--) {
        if (part > 0) list[n++] = (struct use){ .part = part, .pass = PASS_BACKWARD_INPUT };
        list[n++] = (struct use){ .part = part, .pass = PASS_BACKWARD_WEIGHT };
    }
    return n;
}

/* A step of some microbatches, at most two, one after the other. */
static inline void step_of(int micros)
{
    struct use list[2 * MOST_USES] = { 0 };
    int n = 0;
    for (int m = 0; m < micros; m++) n += list_step(list + n);
    set_uses(list, n);
    for (int i = 0; i < n; i++) use(list[i].part, list[i].pass);
    ASSERT_ALL(data_finish_gradients(&dp, &err) == OK && data_step(&dp, 1, 1, &err) == OK, "%s", err.text);
}

#endif
