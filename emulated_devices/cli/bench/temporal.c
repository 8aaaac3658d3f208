/* temporal.c -- `orrery bench temporal`: memories of a graph's nodes by batches of events, with and without
 * prediction.  bench.c calls bench_temporal_topic().  ERR_CHECK: devices have other numbers than one, batches of one
 * event are not exact, or the direction of the claim is another; other errors are those of a run. */
#include "emulated_devices/bench/temporal.h"
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/launch/launch.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <string.h>

struct temporal_asked { int devices, events, nodes; double weight; uint64_t seed; };

enum { BATCHES = 5 };
static const int batches[BATCHES] = { 1, 4, 16, 64, 256 };

/* Two kinds of nodes: they change slower than events come, or as fast. */
static const struct { const char *name; double drift, gate; } kinds[] = {
    { "slow nodes", 0.0005, 4 }, { "fast nodes", 0.01, 2 },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* One device's numbers of all cases, and whether those of the group are the same. */
struct temporal_found { double plain[KINDS][BATCHES], predicted[KINDS][BATCHES], lost[BATCHES]; int differ; };

static enum error_code temporal_case(const struct temporal *of, int batch, struct group *group, double *error,
                                     double *lost, int *differ, struct error *err)
{
    double alone, alone_lost;
    enum error_code e = temporal_error(of, batch, group, error, lost, err);
    if (!e) e = temporal_error(of, batch, NULL, &alone, &alone_lost, err);
    if (!e) *differ += alone != *error || alone_lost != *lost;
    return e;
}

static enum error_code temporal_find(const struct temporal_asked *asked, struct group *group,
                                     struct temporal_found *found, struct error *err)
{
    enum error_code e = OK;
    for (int kind = 0; kind < KINDS; kind++)
        for (int b = 0; b < BATCHES && !e; b++) {
            struct temporal of = { asked->nodes, asked->events, kinds[kind].drift, kinds[kind].gate, 0, asked->seed };
            e = temporal_case(&of, batches[b], group, &found->plain[kind][b], &found->lost[b], &found->differ, err);
            of.weight = asked->weight;
            if (!e) e = temporal_case(&of, batches[b], group, &found->predicted[kind][b], &found->lost[b],
                                      &found->differ, err);
        }
    return e;
}

/* The claim: with prediction, batches four times as large have no larger error.  @return of how many sizes it holds. */
static int temporal_claim(const struct temporal_found *found, int kind)
{
    int holds = 0;
    for (int b = 1; b + 1 < BATCHES; b++) holds += found->predicted[kind][b + 1] <= found->plain[kind][b];
    return holds;
}

static enum error_code temporal_report(const struct temporal_asked *asked, const struct temporal_found *found,
                                       struct error *err)
{
    struct table t = table_start("temporal", 2, "nodes\tbatch\tevents lost %\terror\twith prediction");
    for (int kind = 0; kind < KINDS; kind++)
        for (int b = 0; b < BATCHES; b++)
            table_row(&t, "%s\t%d\t%.1f\t%.4f\t%.4f", kinds[kind].name, batches[b], 100 * found->lost[b],
                      found->plain[kind][b], found->predicted[kind][b]);
    table_end(&t);
    printf("\n");
    for (int kind = 0; kind < KINDS; kind++)
        say(stdout, 0, "%s: with prediction, batches four times as large have no larger error in %d of %d sizes; the "
            "paper claims 4 times", kinds[kind].name, temporal_claim(found, kind), BATCHES - 2);
    if (found->differ > 0)
        return fail(err, ERR_CHECK, "%d of %d cases differ between %d devices and one", found->differ,
                    2 * KINDS * BATCHES, asked->devices);
    for (int kind = 0; kind < KINDS; kind++)
        if (found->plain[kind][0] != 0 || found->predicted[kind][0] != 0)
            return fail(err, ERR_CHECK, "batches of one event are not one event after another: %s", kinds[kind].name);
    if (found->predicted[0][BATCHES - 2] >= found->plain[0][BATCHES - 2])
        return fail(err, ERR_CHECK, "prediction makes the error of batches of %d no smaller", batches[BATCHES - 2]);
    say_verdict(stdout, GOOD_NEWS, "OK: batches of one event are exact, and all devices have the numbers of one");
    return OK;
}

static enum error_code temporal_on(struct comm *comm, const void *context, struct error *err)
{
    const struct temporal_asked *const asked = context;
    struct temporal_found found = { .differ = 0 };
    struct group world;
    enum error_code e = group_world(&world, comm, err);
    if (e) return comm_agree(comm, e, err);
    e = group_agree(&world, temporal_find(asked, &world, &found, err), err);
    if (!e) e = comm_agree(comm, comm->rank == 0 ? temporal_report(asked, &found, err) : OK, err);
    group_close(&world);
    return e;
}

enum error_code bench_temporal_topic(int argc, char **argv, int *status, struct error *err)
{
    struct temporal_asked asked = { .devices = 4, .events = 1024, .nodes = 24, .weight = 0.9, .seed = 42 };
    struct cluster cluster;
    bool help;
    const struct option table[] = {
        { "--devices", "P", OPTION_INT, &asked.devices, .min = 1, .max = 64, .help = "number of devices" },
        { "--events", "N", OPTION_INT, &asked.events, .min = 256, .max = 1 << 20, .help = "events" },
        { "--nodes", "N", OPTION_INT, &asked.nodes, .min = 8, .max = 4096, .help = "nodes of the graph" },
        { "--weight", "X", OPTION_DOUBLE, &asked.weight, .min = 0, .max = 1, .help = "of a prediction: gamma" },
        { "--seed", "N", OPTION_UINT64, &asked.seed, .help = "of events and weights" },
        { 0 }
    };
    enum error_code e = parse_command(
        "bench temporal", "[options]",
        "Memories of the nodes of a graph, moved by batches of events: how far they are from those of one\n"
        "event after another, with and without PRES's prediction and correction. Devices share the nodes, and\n"
        "have the numbers of one device.", argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&cluster, CLUSTER_USUAL, err);
    if (e) return e;
    return under_launcher() ? be_a_device(F64, &cluster, temporal_on, &asked, err)
                            : launch_devices(asked.devices, argc, argv, status, err);
}
