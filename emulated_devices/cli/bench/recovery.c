/* recovery.c -- `orrery bench recovery`: ways of recovering from a lost device, beside what a paper claims of them.
 * bench.c calls bench_recovery_topic().  Errors: ERR_USAGE of the words, ERR_PLAN, ERR_MEMORY. */
#include "emulated_devices/bench/recovery.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/figures.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>

struct recovery_asked {
    int size[RECOVERY_AXES], lost, layers, micros, raise;
    double connect, step;               /* milliseconds */
    struct recovery_state state;
    struct cluster cluster;
};

static const char *const rebuild_names[] = {
#define X(rebuild, name) name,
    REBUILDS(X)
#undef X
};

/* Read in the abstract of arXiv:2510.00606: in place 82 and 3.6 times as fast as a full and a partial rebuild. */
static const char *const rebuild_published[REBUILD_COUNT] = { "82", "3.6", "1" };

static enum error_code print_groups(const struct recovery_asked *asked, struct error *err)
{
    struct table t = table_start("groups", 1, "way\tconnections\tof the busiest device\tms\ttimes in place\tpublished");
    struct rebuild_count count[REBUILD_COUNT];
    enum error_code e = OK;
    for (int way = 0; way < REBUILD_COUNT && !e; way++)
        e = recovery_rebuild(asked->size, asked->lost, (enum rebuild)way, &count[way], err);
    for (int way = 0; way < REBUILD_COUNT && !e; way++) {
        const struct rebuild_count *const own = &count[way], *const edited = &count[REBUILD_IN_PLACE];
        char times[32] = "-";           /* rings of three and fewer are closed already */
        if (edited->busiest > 0)
            snprintf(times, sizeof times, "%.3g", (double)own->busiest / (double)edited->busiest);
        table_row(&t, "%s\t%lld\t%lld\t%.3f\t%s\t%s", rebuild_names[way], (long long)own->connections,
                  (long long)own->busiest, (double)own->busiest * asked->connect, times, rebuild_published[way]);
    }
    if (e) {
        table_drop(&t);
        return e;
    }
    say(stdout, 0, "Groups: device %d of dp %d x tp %d x pp %d is lost; a connection takes %g ms (assumed: "
        "--connect)\n", asked->lost, asked->size[0], asked->size[1], asked->size[2], asked->connect);
    table_end(&t);
    return OK;
}

static enum error_code print_pace(const struct recovery_asked *asked, struct error *err)
{
    struct table t = table_start("pace", 1, "dp\tdropped\tshared\tmoved\traised\tdropped / raised\tshared / raised");
    enum error_code e = OK;
    for (int copies = 2; copies <= 8 && !e; copies++) {
        const struct recovery_pipeline p = { asked->layers, asked->size[2], copies, asked->micros, asked->size[2] / 2,
                                             asked->raise };
        double r[PACE_COUNT];
        for (int pace = 0; pace < PACE_COUNT && !e; pace++) e = recovery_pace(&p, (enum pace)pace, &r[pace], NULL, err);
        if (!e)
            table_row(&t, "%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f", copies, r[PACE_DROPPED], r[PACE_SHARED],
                      r[PACE_MOVED], r[PACE_RAISED], r[PACE_DROPPED] / r[PACE_RAISED],
                      r[PACE_SHARED] / r[PACE_RAISED]);
    }
    if (e) {
        table_drop(&t);
        return e;
    }
    say(stdout, 0, "\nPace: a step after the loss of one copy of stage %d of %d, over a step before; %d layers, %d "
        "microbatches; clock rates rise by up to %d %%\n", asked->size[2] / 2, asked->size[2], asked->layers,
        asked->micros, asked->raise);
    table_end(&t);
    say(stdout, 0, "\nPublished, on 96 devices whose mesh the abstract does not say: 1.60 times the throughput of "
        "TorchFT (dropped / raised), 1.35 times that of ReCycle (shared / raised).");
    return OK;
}

static const char *const restore_names[] = {
#define X(restore, name, rebuild) name,
    RESTORES(X)
#undef X
};

/* All parts of a recovery: groups, the state, and the steps that are done again. */
static enum error_code print_restoring(const struct recovery_asked *asked, struct error *err)
{
    struct table t = table_start("restoring", 1, "way\tgroups ms\trestoring ms\tlost steps\tdone again ms\tin all ms");
    enum error_code e = OK;
    for (int way = 0; way < RESTORE_COUNT && !e; way++) {
        const struct restore_cost cost = recovery_restore(&asked->state, &asked->cluster, (enum restore)way);
        struct rebuild_count count = { 0 };
        e = recovery_rebuild(asked->size, asked->lost, recovery_rebuild_of((enum restore)way), &count, err);
        const double groups = (double)count.busiest * asked->connect, restoring = (double)cost.restoring / 1e9,
                     again = cost.lost * asked->step;
        if (!e)
            table_row(&t, "%s\t%.3f\t%.3f\t%g\t%.3f\t%.3f", restore_names[way], groups, restoring, cost.lost, again,
                      groups + restoring + again);
    }
    if (e) {
        table_drop(&t);
        return e;
    }
    say(stdout, 0, "\nRestoring: %s of state a device, a step of %s (assumed: --state, --step), checkpoints every %d "
        "steps, on cluster %s\n", size_format(asked->state.bytes).text, time_format(asked->step / 1e3).text,
        asked->state.every, asked->cluster.name);
    table_end(&t);
    return OK;
}

static enum error_code print_slices(const struct recovery_asked *asked, struct error *err)
{
    struct table t = table_start("slices", 1, "dp\tmoved, contiguous\tmoved, interleaved\tbusiest link, contiguous\t"
                                 "busiest link, interleaved\ttimes less");
    enum { LAYER = 1 << 24 };           /* bytes of its states */
    enum error_code e = OK;
    for (int copies = 2; copies <= 8 && !e; copies *= 2) {
        uint64_t busiest[2], moved[2];
        for (int interleaved = 0; interleaved < 2 && !e; interleaved++)
            e = recovery_slices(asked->layers / asked->size[2], copies, LAYER, interleaved, &busiest[interleaved],
                                &moved[interleaved], err);
        if (!e)
            table_row(&t, "%d\t%llu\t%llu\t%llu\t%llu\t%.2f", copies, (unsigned long long)moved[0],
                      (unsigned long long)moved[1], (unsigned long long)busiest[0], (unsigned long long)busiest[1],
                      (double)busiest[0] / (double)busiest[1]);
    }
    if (e) {
        table_drop(&t);
        return e;
    }
    say(stdout, 0, "\nSlices: bytes when a layer of 16 MiB moves to the next stage of %d layers, and the copies of a "
        "stage share its states by ZeRO\n", asked->layers / asked->size[2]);
    table_end(&t);
    return OK;
}

enum error_code bench_recovery_topic(int argc, char **argv, int *status, struct error *err)
{
    struct recovery_asked o = { .size = { 4, 4, 6 }, .lost = 37, .layers = 48, .micros = 24, .raise = 10,
                                .connect = 10, .step = 5000, .state = { 10000000000, 100 } };
    const char *word = BENCH_CLUSTER;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--dp", "N", OPTION_INT, &o.size[0], .min = 1, .max = 1024, .help = "copies of the model" },
        { "--tp", "N", OPTION_INT, &o.size[1], .min = 1, .max = 1024, .help = "devices that share a layer" },
        { "--pp", "N", OPTION_INT, &o.size[2], .min = 1, .max = 1024, .help = "stages" },
        { "--lost", "RANK", OPTION_INT, &o.lost, .min = 0, .max = 1 << 20, .help = "the device that is lost" },
        { "--layers", "N", OPTION_INT, &o.layers, .min = 1, .max = 10000, .help = "of the model" },
        { "--micro", "N", OPTION_INT, &o.micros, .min = 1, .max = 100000, .help = "microbatches of a copy" },
        { "--raise", "PERCENT", OPTION_INT, &o.raise, .min = 0, .max = 100,
          .help = "by which the clock rate of a slow stage can rise" },
        { "--connect", "MS", OPTION_DOUBLE, &o.connect, .min = 1e-6, .max = 1e6,
          .help = "milliseconds that a device takes to open a connection" },
        { "--state", "SIZE", OPTION_SIZE, &o.state.bytes, .min = 1, .max = 1e15, .help = "bytes of a device's state" },
        { "--step", "MS", OPTION_DOUBLE, &o.step, .min = 1e-6, .max = 1e9, .help = "milliseconds of a step" },
        { "--every", "N", OPTION_INT, &o.state.every, .min = 1, .max = 1000000,
          .help = "steps between two checkpoints" },
        CLUSTER_OPTION(word, "whose drives, hosts and outermost link bring the state"),
        { 0 }
    };
    enum error_code e = parse_command("bench recovery", "[options]",
                                      "What a lost device costs: groups that are built anew, built in part, or edited\n"
                                      "in place; where the state comes from, and which steps are done again; steps on\n"
                                      "the devices that are left; layers that move among them.\n"
                                      "docs/using/jobs.md says what is counted.",
                                      argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    const int64_t devices = (int64_t)o.size[0] * o.size[1] * o.size[2];
    if (devices > 1 << 20)
        return fail(err, ERR_USAGE, "--dp, --tp, --pp: %lld devices are more than %d", (long long)devices, 1 << 20);
    if (o.lost >= devices)
        return fail(err, ERR_USAGE, "--lost %d: the mesh has devices 0 to %lld", o.lost, (long long)devices - 1);
    if (o.layers < 2 * o.size[2])
        return fail(err, ERR_USAGE, "--layers %d: each of %d stages needs two, for one of them moves", o.layers,
                    o.size[2]);
    e = cluster_find(&o.cluster, word, err);
    if (!e) e = print_groups(&o, err);
    if (!e) e = print_restoring(&o, err);
    if (!e) e = print_pace(&o, err);
    return e ? e : print_slices(&o, err);
}
