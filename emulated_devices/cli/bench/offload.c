/* offload.c -- `orrery bench offload`: loading weights in parts and by one owner, the update of offloaded states with
 * every stride, and inference with some of the experts there (ring.h), in virtual time.
 *
 * All use real numbers and the training code.  In virtual time a copy has no fixed cost, so the ratios do not depend
 * on the sizes.
 */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/bench/ring.h"
#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/data/stages/load.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include <stdio.h>
#include <stdlib.h>

struct asked { int devices, megabytes, slice; const char *cluster_name; struct cluster cluster; };

/* ---- loading ----------------------------------------------------------------------------------------------------- */

struct loaded { picoseconds read, all; };

/* On the first P devices. */
static enum error_code offload_load(struct comm *world, int P, int64_t n, bool by_owner, struct loaded *out,
                                    struct error *err)
{
    struct group group;
    struct tier tier;
    int ranks[MESH_MOST_DEVICES];
    for (int i = 0; i < P; i++) ranks[i] = i;
    enum error_code e = group_of(&group, world, ranks, P, TRAFFIC_OTHER, 0, err);
    if (e) return e;
    clock_reset(&world->device->clock);
    const int64_t own = by_owner ? (world->rank == 0 ? n : 0) : n / P;
    e = tier_open(&tier, world->device, NULL, tier_room((uint64_t)own * sizeof(float)), err);
    if (!e) {
        struct load l = { .group = &group, .tier = &tier, .home = tier_place(&tier, F32, own) };
        l.whole = device_tensor_1d(world->device, PARAMETERS, n);
        if (l.whole.data == NULL) e = fail(err, ERR_MEMORY, "no memory for %lld weights", (long long)n);
        if (!e) e = by_owner ? load_by_owner(&l, 0, err) : load_in_parts(&l, err);
        *out = (struct loaded){ l.read, world->device->clock.now };
        device_free(world->device, l.whole);
        tier_close(&tier);
    }
    group_close(&group);
    return e;
}

/* The last device's time, on rank 0. */
static enum error_code slowest(struct comm *world, struct loaded *loaded, struct error *err)
{
    double both[2] = { (double)loaded->read, (double)loaded->all };
    const enum error_code e = allreduce(world->everyone, both, 2, F64, MAX, NULL, err);
    *loaded = (struct loaded){ (picoseconds)both[0], (picoseconds)both[1] };
    return e;
}

static enum error_code print_loads(struct comm *world, const struct asked *asked, struct error *err)
{
    enum error_code e = OK;
    struct table table = table_start("loading", 1, "P\tread, parts\tread, owner\tratio\tall, parts\tall, owner"
                                                   "\tratio of all");
    if (world->rank == 0) {
        say(stdout, 0, "Loading %d MiB of weights from the hosts to P devices of %s, in us of virtual time:\n"
            "each device reads 1/P and they gather (ZeRO-Infinity, arXiv:2104.07857), or one owner reads\n"
            "all and broadcasts", asked->megabytes, asked->cluster.name);
        printf("\n");
    }
    for (int P = 1; P <= world->size && !e; P++) {
        struct loaded t[2] = { { 0, 0 }, { 0, 0 } };
        const int64_t n = ((int64_t)asked->megabytes << 18) / P * P;
        for (int by_owner = 0; by_owner < 2 && !e; by_owner++) {
            if (world->rank < P) e = offload_load(world, P, n, by_owner, &t[by_owner], err);
            e = comm_agree(world, e, err);
            if (!e) e = slowest(world, &t[by_owner], err);
        }
        if (world->rank == 0 && !e)
            table_row(&table, "%d\t%.1f\t%.1f\t%.2f\t%.1f\t%.1f\t%.2f", P, 1e-6 * (double)t[0].read,
                   1e-6 * (double)t[1].read, (double)t[1].read / (double)t[0].read, 1e-6 * (double)t[0].all,
                   1e-6 * (double)t[1].all, (double)t[1].all / (double)t[0].all);
    }
    if (world->rank == 0) table_end(&table);
    else table_drop(&table);
    return e;
}

/* ---- strides ----------------------------------------------------------------------------------------------------- */

static const struct model_config model = {
    .name = "bench", .S = 16, .D = 128, .H = 4, .K = 4, .A = 32, .F = 512, .L = 12, .V = 256, .tied = true,
    .family = &family_gpt2, .biases = BIASES_BLOCK, .eps = 1e-5, .init_std = 0.02,
};

/* One device.  bf16 weights stay on the device; gradients, masters and states are on the host, as in DeepSpeed's
 * offloading. */
static enum error_code offload_update(struct comm *alone, const struct asked *asked, int stride,
                                      picoseconds *took, int *slices, struct error *err)
{
    struct group group;
    struct hyperparameters hyper = optimizers[0]->usual;
    struct parameters parameters = { .count = model_param_count(&model) };
    struct data_parallel dp = {
        .config = &model, .device = alone->device, .group = &group, .parameters = &parameters, .hyper = &hyper,
        .versions = 1,
        .request = { .scheme = "zero3", .offload = 1u << OPTIMIZER | 1u << GRADIENTS, .offload_slice = asked->slice,
                     .offload_stride = stride,
                     .narrow_gradients = true },
    };
    enum error_code e = group_of(&group, alone, &alone->rank, 1, TRAFFIC_OTHER, 0, err);
    if (e) return e;
    parameters.all = calloc((size_t)parameters.count, sizeof *parameters.all);
    if (parameters.all == NULL) e = fail(err, ERR_MEMORY, "no memory for a list of %d parameters", parameters.count);
    for (int i = 0; i < parameters.count && !e; i++) {
        struct parameter *p = &parameters.all[i];
        *p = (struct parameter){ .spec = model_param(&model, i), .index = i, .holders = 1 };
        p->layout = layout_whole(p->spec.ndim, p->spec.dim);
    }
    if (!e) e = data_scheme_find(&dp.scheme, dp.request.scheme, err);
    if (!e) e = optimizer_find(&dp.optimizer, "adamw", err);
    if (!e) {
        clock_reset(&alone->device->clock);
        e = data_open(&dp, 1, err);
        if (!e) e = data_step(&dp, 1, 1, err);
        *took = alone->device->clock.now, *slices = data_slices(&dp);
        data_close(&dp);
    }
    free(parameters.all);
    group_close(&group);
    return e;
}

/* Update steps of the 20B model on 4 A100, in ms, by stride; the host alone first: logs released with arXiv:2410.21316
 * (github.com/mauryaavinash95/deep-optimizer-states-results). */
static double published(int stride)
{
    static const double ms[] = { [1] = 5276, [2] = 3494, [3] = 3611, [4] = 3763, [6] = 3919, [8] = 3970, [10] = 3967 };
    return stride <= 10 ? ms[stride] : 0;
}

enum { HOST_ALONE = 1000000, MOST_STRIDE = 10 };

static void add_stride(struct table *table, const char *name, picoseconds took, picoseconds host, double limit,
                       double paper, const char *mark)
{
    char beside[16] = "-";
    if (paper > 0) snprintf(beside, sizeof beside, "%.2f", paper / published(1));
    table_row(table, "%s\t%.1f\t%.2f\t%.2f\t%s\t%s", name, 1e-6 * (double)took, (double)took / (double)host,
              limit, beside,
           mark);
}

/* The copies of an average slice, by the cluster's rates: 2 bytes of gradient and 12 of master and states are read,
 * fewer are written. */
static enum error_code print_strides(struct comm *alone, const struct asked *asked, struct error *err)
{
    picoseconds took[MOST_STRIDE + 1], host = 0;
    int slices = 0, best = 1;
    enum error_code e = offload_update(alone, asked, HOST_ALONE, &host, &slices, err);
    for (int k = 1; k <= MOST_STRIDE && !e; k++) {
        e = offload_update(alone, asked, k, &took[k], &slices, err);
        if (took[k] < took[best]) best = k;
    }
    if (e) return e;
    const picoseconds by_host = host / slices,
                      moved = time_at_rate(14 * (uint64_t)(model_elements(&model) / slices), asked->cluster.copy_rate);
    printf("\n");
    say(stdout, 0, "The update of %d slices of up to %d elements, bf16 weights on the device, the rest in host\n"
        "memory, one device: every kth slice is read, stepped by the device and written back; the host\n"
        "steps the others (Deep Optimizer States, arXiv:2410.21316)", slices, asked->slice);
    printf("\n");
    struct table t = table_start("strides", 1, "stride\tvirtual us\tof host's\tformula\tpublished\t");
    add_stride(&t, "host alone", host, host, 1, published(1), "");
    for (int k = 1; k <= MOST_STRIDE; k++) {
        char name[16];
        const double most = (double)((k - 1) * by_host > moved ? (k - 1) * by_host : moved);
        snprintf(name, sizeof name, "%d", k);
        add_stride(&t, name, took[k], host, most / k / (double)by_host, k > 1 ? published(k) : 0,
                     k == best ? "least" : "");
    }
    table_end(&t);
    printf("\n");
    say(stdout, 0,
        "formula: max((k-1) host, copies)/k of a slice, in units of the host's time for one;\nleast at stride %d",
        data_balanced_stride(by_host, moved));
    say(stdout, 0, "published: the 20B model on 4 A100s, in units of its own host's time");
    return OK;
}

/* ---- the topic --------------------------------------------------------------------------------------------------- */

static enum error_code run_strides(struct comm *world, const struct asked *asked, struct error *err)
{
    struct device narrow;
    if (world->rank != 0) return OK;
    enum error_code e = device_open(&narrow, NULL, BF16, 0, err);
    if (e) return e;
    clock_open(&narrow.clock, &asked->cluster, BF16);
    struct device *const usual = world->device;
    world->device = &narrow;                            /* it sends nothing */
    e = print_strides(world, asked, err);
    world->device = usual;
    device_close(&narrow);
    return e;
}

static enum error_code offload_run(struct comm *world, const void *asked, struct error *err)
{
    const struct asked *a = asked;
    enum error_code e = print_loads(world, a, err);
    if (!e) e = comm_agree(world, run_strides(world, a, err), err);
    return e ? e : bench_rings(world, &a->cluster, err);
}

enum error_code bench_offload_topic(int argc, char **argv, int *status, struct error *err)
{
    struct asked a = { .devices = 8, .megabytes = 8, .slice = 1 << 14, .cluster_name = "a100-ethernet" };
    bool help;
    const struct option table[] = {
        { "--devices", "N", OPTION_INT, &a.devices, .min = 1, .max = 64, .help = "load on groups of 1 to N devices" },
        { "--mib", "N", OPTION_INT, &a.megabytes, .min = 1, .max = 1024, .help = "weights to load" },
        { "--slice", "N", OPTION_INT, &a.slice, .min = 64, .max = 1e6, .help = "elements of a slice" },
        CLUSTER_OPTION(a.cluster_name, "the machine"),
        THREADS_OPTION,
        { 0 }
    };
    enum error_code e = parse_command(
        "bench offload", "[options]",
        "Load weights over every device's link or from one owner, update offloaded states with several\n"
        "strides, and infer with some of the experts on the device, in virtual time.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&a.cluster, a.cluster_name, err);
    if (!e) e = cluster_check(&a.cluster, a.devices, BF16, err);
    if (e) return e;
    return under_launcher() || a.devices == 1 ? be_a_device(F32, &a.cluster, offload_run, &a, err)
                                              : launch_devices(a.devices, argc, argv, status, err);
}
