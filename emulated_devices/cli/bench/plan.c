/* plan.c -- `orrery bench plan`: what a plan takes of this machine, for each of its messages.  bench.c calls
 * bench_plan_topic().  ERR_USAGE is for devices that are no multiple of tp x pp; other errors are a plan's. */
#include "emulated_devices/bench/plan_speed.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/time_left.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>

enum { PARTS = PLAN_SPEED_PARTS, ROWS = 8 };

static void plan_add_row(struct table *table, int devices, const struct plan_speed_row *row)
{
    const struct crew_outcome *o = &row->crew;
    table_row(table, "%d\t%s\t%d\t%llu\t%llu\t%.2f\t%.0f\t%.0f\t%.1f", devices,
              row->folded, o->lives, (unsigned long long)o->events,
           (unsigned long long)o->switches, row->seconds, o->events ? 1e9 * row->seconds / (double)o->events : 0,
           (double)row->kilobytes / 1024, 1e-9 * (double)row->step);
}

static enum error_code plan_print_all(const struct plan_speed *wanted, struct error *err)
{
    int devices[ROWS], count = 0;
    enum error_code e = bench_devices(wanted->devices, MESH_MOST_DEVICES, ROWS, devices, &count, err);
    for (int i = 0; i < count && !e; i++)
        if (devices[i] % (PARTS * PARTS) != 0)
            e = fail(err, ERR_USAGE, "--devices %d: must be a multiple of %d, tp %d x pp %d", devices[i],
                     PARTS * PARTS, PARTS, PARTS);
    if (e) return e;
    say(stdout, 0, "A step of %s without its numbers: %d microbatches of a sequence, 1f1b, tp %d x pp %d x dp,\n"
        "bf16, a vocabulary padded to a multiple of 128 tp, on %s\n", wanted->model, wanted->micro, PARTS, PARTS,
        wanted->cluster.name);
    struct table t = table_start("plans", 1, "devices\tfolded\tran\tevents\tswitches\tseconds\tns/event\tMB"
                                             "\tvirtual ms");
    struct time_left line;
    time_left_begin(&line);
    for (int i = 0; i < count && !e; i++) {
        struct plan_speed_row r = { .code = OK };
        time_left_show(&line, (double)i / count, "planning", "");
        e = plan_speed_measure(wanted, devices[i], &r, err);
        if (!e) plan_add_row(&t, devices[i], &r);
    }
    time_left_end(&line);
    table_end(&t);
    say(stdout, 0,
        "\nEvents: messages sent and received by the devices that ran. Seconds of a processor. MB: the most\n"
        "that the process held.");
    return e;
}

enum error_code bench_plan_topic(int argc, char **argv, int *status, struct error *err)
{
    struct plan_speed w = { .model = "gpt3-175b", .devices = "512,4096,16384,131072", .micro = 8,
                            .streams = USUAL_COMM_STREAMS };
    const char *cluster = BENCH_CLUSTER;
    bool help;
    (void)status;
    const struct option table[] = {
        { "--model", "NAME", OPTION_STRING, &w.model, .help = "a preset" },
        { "--devices", "LIST", OPTION_STRING, &w.devices, .help = "numbers of devices, multiples of 64" },
        { "--micro", "M", OPTION_INT, &w.micro, .min = 1, .max = 4096, .help = "microbatches of each copy" },
        { "--cluster", "NAME|FILE", OPTION_STRING, &cluster, .help = "the machine" },
        { "--comm-streams", "N", OPTION_INT, &w.streams, .min = 1, .max = MOST_COMM_STREAMS,
          .help = "communication streams of a device, as `orrery plan` has them" },
        { "--unfolded", NULL, OPTION_SWITCH, &w.unfolded, .help = "run every device" },
        { 0 }
    };
    enum error_code e = parse_command("bench plan", "[options]",
                                      "The time of a plan for each message of it, and the memory that it takes.",
                                      argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&w.cluster, cluster, err);
    return e ? e : plan_print_all(&w, err);
}
