/* offload.c -- `orrery bench offload`: loading weights in parts and by one owner, the update of offloaded states with
 * every stride, and inference with some of the experts there, in virtual time.  bench.c calls bench_offload_topic().
 * Errors: ERR_USAGE of the words, ERR_CHECK if a claim does not hold, and those of a measurement. */
#include "emulated_devices/bench/offload/offload.h"
#include "emulated_devices/bench/offload/rings.h"
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/bench/claims_table.h"
#include "emulated_devices/comm/comm.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>

struct asked { int devices, megabytes, slice; const char *cluster_name; struct cluster cluster; };

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static enum error_code print_loads(struct comm *world, const struct asked *asked, struct error *err)
{
    enum error_code e = OK;
    struct table table = table_start("loading", 1, "P\tread, parts\tread, owner\tratio\tall, parts\tall, owner"
                                                   "\tratio of all");
    if (world->rank == 0) {
        say(stdout, 0, "Loading %d MiB of weights from the hosts to P devices of %s, in us of virtual time:\n"
            "each device reads 1/P and they gather (ZeRO-Infinity, arXiv:2104.07857), or one owner reads\n"
            "all and broadcasts\n", asked->megabytes, asked->cluster.name);
    }
    for (int P = 1; P <= world->size && !e; P++) {
        struct offload_loaded t[2] = { { 0, 0 }, { 0, 0 } };
        for (int by_owner = 0; by_owner < 2 && !e; by_owner++)
            e = offload_load(world, P, asked->megabytes, by_owner, &t[by_owner], err);
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

enum { MOST_STRIDE = 10 };

static void add_stride(struct table *table, const char *name, picoseconds took, picoseconds host, double limit,
                       const char *mark)
{
    table_row(table, "%s\t%.1f\t%.2f\t%.2f\t%s", name, 1e-6 * (double)took, (double)took / (double)host, limit, mark);
}

static enum error_code print_published(struct comm *alone, const struct asked *asked, struct error *err)
{
    char slice[16];
    snprintf(slice, sizeof slice, "%d", asked->slice);
    const struct claims_setting by_slices = { .word = { "--slice", slice }, .words = 2, .alone = alone }, none = { 0 };
    const enum error_code e = claims_show("offload-strides", &by_slices, err);
    return e ? e : claims_show("offload-shared", &none, err);
}

/* The copies of an average slice, by the cluster's rates: 2 bytes of gradient and 12 of master and states are read,
 * fewer are written. */
static enum error_code print_strides(struct comm *alone, const struct asked *asked, struct error *err)
{
    picoseconds took[MOST_STRIDE + 1], host = 0;
    int slices = 0, best = 1;
    enum error_code e = offload_update(alone, asked->slice, OFFLOAD_HOST_ALONE, &host, &slices, err);
    for (int k = 1; k <= MOST_STRIDE && !e; k++) {
        e = offload_update(alone, asked->slice, k, &took[k], &slices, err);
        if (took[k] < took[best]) best = k;
    }
    if (e) return e;
    const picoseconds by_host = host / slices,
                      moved = time_at_rate(14 * (uint64_t)(offload_elements() / slices), asked->cluster.copy_rate);
    say(stdout, 0, "\nThe update of %d slices of up to %d elements, bf16 weights on the device, the rest in host\n"
        "memory, one device: every kth slice is read, stepped by the device and written back; the host\n"
        "steps the others (Deep Optimizer States, arXiv:2410.21316)\n", slices, asked->slice);
    struct table t = table_start("strides", 1, "stride\tvirtual us\tof host's\tformula\t");
    add_stride(&t, "host alone", host, host, 1, "");
    for (int k = 1; k <= MOST_STRIDE; k++) {
        char name[16];
        const double most = (double)((k - 1) * by_host > moved ? (k - 1) * by_host : moved);
        snprintf(name, sizeof name, "%d", k);
        add_stride(&t, name, took[k], host, most / k / (double)by_host, k == best ? "least" : "");
    }
    table_end(&t);
    say(stdout, 0,
        "\nformula: max((k-1) host, copies)/k of a slice, in units of the host's time for one;\nleast at stride %d\n",
        offload_balanced_stride(by_host, moved));
    return print_published(alone, asked, err);
}

/* ---- rings ------------------------------------------------------------------------------------------------------ */

/* The paper reports this of its system beside DeepSpeed's: GB of a GPU in training 104.1B parameters on 64 A100s. */
static const double said_gb[2] = { 66.3, 54.4 };

static void offload_add_row(struct table *table, const char *name, const struct ring_run *ring_run,
                            const struct ring_run *all, double layers)
{
    const double want = 1 - (RING_LAYERS - layers) * ring_expert_bytes() / (double)all->weights;
    table_row(table, "%s\t%.1f\t%.3f\t%.3f\t%.1f\t%llu\t%.1f", name, (double)ring_run->weights / 1000,
           (double)ring_run->weights / (double)all->weights, want, (double)ring_run->read / 1000,
           (unsigned long long)ring_run->reads, ring_run->us);
}

static void print_rings(const struct ring_run run[RING_RUNS], const struct cluster *cluster, int devices)
{
    say(stdout, 0, "\nInference, %d passes, on %d device%s of %s, with some of the experts of %d layers on\n"
        "each (MoESys, arXiv:2205.10034): KB of weights, their part of all, by formula 1 - (N - K) S / N\n"
        "of all, KB read, reads, and virtual us\n", RING_PASSES, devices, devices > 1 ? "s" : "", cluster->name,
        RING_LAYERS);
    struct table t = table_start("rings", 1, "experts\tKB\tof all\tformula\tKB read\treads\tus");
    offload_add_row(&t, "all there", &run[0], &run[0], RING_LAYERS);
    for (int k = 0; k < RINGS; k++) {
        char name[24];
        snprintf(name, sizeof name, "ring of %d", RING_FIRST + k);
        offload_add_row(&t, name, &run[1 + k], &run[0], RING_FIRST + k);
    }
    offload_add_row(&t, "chosen experts", &run[RING_RUNS - 1], &run[0], 1);
    table_end(&t);
    say(stdout, 0,
        "\nsaid: %.1f GB of a GPU instead of DeepSpeed's %.1f (%.3f of it), in training 104.1B parameters on\n"
        "64 A100s, and 13 %% more tokens a second in inference.  Of a described cluster we count what moves,\n"
        "not what another system does with it", said_gb[1], said_gb[0], said_gb[1] / said_gb[0]);
}

static enum error_code run_rings(struct comm *world, const struct cluster *cluster, struct error *err)
{
    struct ring_run run[RING_RUNS] = { { 0 } };
    const enum error_code e = rings_measure(world, cluster, run, err);
    if (!e && world->rank == 0) print_rings(run, cluster, world->size);
    return e;
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
    return e ? e : run_rings(world, &a->cluster, err);
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
