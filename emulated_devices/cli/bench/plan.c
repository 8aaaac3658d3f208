/* plan.c -- `orrery bench plan`: what a plan takes of this machine, for each of its messages. */
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/time_left.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PARTS = 8, ROWS = 8 };           /* along tp and pp */

struct wanted { const char *model, *devices; int micro, streams; bool unfolded; struct cluster cluster; };

/* This holds what a process that ran a plan says of it. */
struct row {
    enum error_code code;
    struct error err;
    struct dry_run run;
    double seconds;                     /* of a processor */
    picoseconds step;
    long kilobytes;
};

static enum error_code plan_of(struct plan *plan, const struct wanted *wanted, int devices, struct error *err)
{
    const int size[AXIS_COUNT] = { [PP] = PARTS, [DP] = devices / PARTS / PARTS, [CP] = 1, [EP] = 1, [TP] = PARTS };
    int64_t batch;
    *plan = (struct plan){
        .micros = wanted->micro, .chunks = 1, .dtype = BF16, .cluster = &wanted->cluster, .degree = -1,
        .comm_streams = wanted->streams,
        .data = { .scheme = data_scheme_at(0)->head.name, .bucket = 25 << 20, .offload_slice = 1 << 16 },
        .tensor = tensor_scheme_at(0)->head.name, .attention = attention_scheme_at(0)->head.name,
        .dispatch = expert_scheme_at(0)->head.name, .schedule = schedule_generator_at(0)->head.name,
        .optimizer = optimizers[0], .hyper = optimizers[0]->usual,
    };
    enum error_code e = model_config_preset(&plan->model, &batch, wanted->model, err);
    if (!e) e = mesh_make(&plan->mesh, size, err);
    plan->S = plan->model.S, plan->B = (int64_t)size[DP] * wanted->micro;
    return e ? e : plan_check(plan, err);
}

static enum error_code note_time(struct trainer *trainer, void *step, struct error *err)
{
    (void)err;
    if (trainer->device->clock.now > *(picoseconds *)step) *(picoseconds *)step = trainer->device->clock.now;
    return OK;
}

static struct row run_plan_of(const struct wanted *wanted, int devices)
{
    struct row r = { .code = OK };
    struct plan p;
    r.code = plan_of(&p, wanted, devices, &r.err);
    if (!r.code) r.code = dry_run(&p, 1, wanted->unfolded, NULL, NULL, note_time, &r.step, &r.run, &r.err);
    return r;
}

/* In a process of its own, whose peak of memory is the plan's. */
static enum error_code plan_measure(const struct wanted *wanted, int devices, struct row *row, struct error *err)
{
    int ends[2];
    struct child_end end = { 0 };
    fflush(NULL);
    if (pipe(ends) != 0) return fail(err, ERR_MEMORY, "no pipe to a process");
    const pid_t child = child_start();
    if (child == 0) {
        const struct row own = run_plan_of(wanted, devices);
        _exit(write(ends[1], &own, sizeof own) == (ssize_t)sizeof own ? 0 : 1);
    }
    close(ends[1]);
    const bool got = child > 0 && read(ends[0], row, sizeof *row) == (ssize_t)sizeof *row;
    close(ends[0]);
    if (child > 0) child_wait(child, 0, &end);
    const struct rusage used = end.used;
    if (!got) return fail(err, ERR_MEMORY, "the process for a plan of %d devices has ended", devices);
    row->kilobytes = used.ru_maxrss;
    row->seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return row->code ? fail(err, row->code, "%d devices: %s", devices, row->err.text) : OK;
}

static void plan_add_row(struct table *table, int devices, const struct row *row)
{
    char folded[40];
    const struct crew_outcome *o = &row->run.crew;
    table_row(table, "%d\t%s\t%d\t%llu\t%llu\t%.2f\t%.0f\t%.0f\t%.1f", devices,
              folding_describe(&row->run.folding, folded, sizeof folded), o->lives, (unsigned long long)o->events,
           (unsigned long long)o->switches, row->seconds, o->events ? 1e9 * row->seconds / (double)o->events : 0,
           (double)row->kilobytes / 1024, 1e-9 * (double)row->step);
}

static enum error_code plan_print_all(const struct wanted *wanted, struct error *err)
{
    int devices[ROWS], count = 0;
    enum error_code e = bench_devices(wanted->devices, MESH_MOST_DEVICES, ROWS, devices, &count, err);
    for (int i = 0; i < count && !e; i++)
        if (devices[i] % (PARTS * PARTS) != 0)
            e = fail(err, ERR_USAGE, "--devices %d: must be a multiple of %d, tp %d x pp %d", devices[i],
                     PARTS * PARTS, PARTS, PARTS);
    if (e) return e;
    say(stdout, 0, "A step of %s without its numbers: %d microbatches of a sequence, 1f1b, tp %d x pp %d x dp,\n"
        "bf16, on %s\n", wanted->model, wanted->micro, PARTS, PARTS, wanted->cluster.name);
    struct table t = table_start("plans", 1, "devices\tfolded\tran\tevents\tswitches\tseconds\tns/event\tMB"
                                             "\tvirtual ms");
    struct time_left line;
    time_left_begin(&line);
    for (int i = 0; i < count && !e; i++) {
        struct row r = { .code = OK };
        time_left_show(&line, (double)i / count, "planning", "");
        e = plan_measure(wanted, devices[i], &r, err);
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
    struct wanted w = { .model = "gpt3-175b", .devices = "512,4096,16384", .micro = 8, .streams = USUAL_COMM_STREAMS };
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
