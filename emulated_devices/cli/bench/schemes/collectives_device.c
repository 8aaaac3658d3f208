/* collectives_device.c -- one device of the benchmark: runs every algorithm and MPI's own, in turn, with every size. */
#include "emulated_devices/cli/bench/schemes/collectives.h"
#include "emulated_devices/cli/cli.h"
#include "ref/machine/measure.h"
#include "emulated_devices/comm/peer.h"
#include "emulated_devices/device/pool.h"
#include "emulated_devices/verify/cases/exact.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/cores.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row of the comparison: one of our algorithms, a way to call MPI's, or a limit: all devices at once copy, each in
 * memory of its own, as many bytes as have to reach a device, in blocks as long as those of a ring.  LIMIT: call after
 * call.  Where devices share a core, one that has it would find in a cache what it copied just before, which in a
 * collective has left it: the others' vectors have come by.  So it copies in several vectors in turn.  IN_STEP: all
 * wait for each other after each call. */
enum { LIMIT = PEER_WAYS, IN_STEP, WAYS };
struct lane {
    const struct algorithm *algorithm;  /* NULL: MPI's, or the limit */
    int way;                            /* enum peer_way, LIMIT or IN_STEP */
    int64_t repeat;                     /* calls in a row that are timed together */
    double seconds[BENCH_MOST_RUNS];    /* of one call, the slowest device's */
    double busy[BENCH_MOST_RUNS];       /* of processors, of all devices */
    double median, least, processors;   /* of those; processors: the median */
    double counted[4];                  /* largest over devices: messages, bytes, virtual picoseconds, wrong elements */
};

enum { MESSAGES, BYTES, VIRTUAL, WRONG, COUNTED };

struct bench {
    const struct bench_collectives *asked;
    struct comm *world;
    struct exact_call call;
    struct lane lane[BENCH_ALGORITHMS + WAYS];          /* the first in the order of `way` */
    int lanes;
    bool limited;                       /* there are lanes for the limits */
    int turns, turn;                    /* vectors behind `in` and behind `out`, and the one that LIMIT copies next */
    bool speaks, wrong;
    cJSON *rows;
};

static const char *lane_name(const struct lane *lane)
{
    static const char *const others[] = { "MPI, blocking", "MPI, yielding", "copies alone", "copies in step" };
    return lane->algorithm ? lane->algorithm->name : others[lane->way];
}

/* ---- running one lane -------------------------------------------------------------------------------------------- */

/* The part of the vector that each link must carry, as in nccl-tests. */
static double bus_factor(enum operation op, int P)
{
    switch (op) {
    case ALLREDUCE: return 2.0 * (P - 1) / P;
    case REDUCE_SCATTER: case ALLGATHER: case ALLTOALL: case GATHER: case SCATTER: case SPARSE_ALLGATHER:
    case SPARSE_REDUCE_SCATTER: return (double)(P - 1) / P;
    default: return 1;
    }
}

static uint64_t call_bytes(const struct bench *bench)
{
    if (bench->call.operation == BARRIER) return 0;
    return dtype_size(bench->call.args.dtype) * (uint64_t)bench->call.args.count *
           (bench->call.operation == ALLTOALL ? (uint64_t)bench->call.P : 1);
}

/* Whether copying alone is a limit: every device has to receive as much as the others, and more than the head. */
static bool has_limit(const struct exact_call *call, uint64_t bytes)
{
    const enum operation op = call->operation;
    return (op == ALLREDUCE || op == REDUCE_SCATTER || op == ALLGATHER || op == ALLTOALL) && call->P > 1 &&
           bytes / (uint64_t)call->P >= 1024;
}

static uint64_t collectives_device_least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* So many that the devices that have a core go through as much memory as all devices have in a collective. */
static int turns_of(const struct bench *bench, size_t vectors)
{
    const uint64_t all_at_most = UINT64_C(1) << 30;
    const uint64_t P = (uint64_t)bench->call.P, cores = (uint64_t)cores_usable(),
                   wanted = (P + cores - 1) / cores, room = all_at_most / P / (vectors + 1);
    return (int)(room < 1 ? 1 : collectives_device_least(wanted, room));
}

static void copy_alone(const struct bench *bench, int turn)
{
    const struct exact_call *call = &bench->call;
    const uint64_t each = dtype_size(call->args.dtype), in = each * (uint64_t)exact_in_length(call),
                   out = each * (uint64_t)exact_out_length(call);
    const uint64_t block = collectives_device_least(collectives_device_least(in, out),
                                                    call_bytes(bench) / (uint64_t)call->P);
    uint64_t left = (uint64_t)((double)call_bytes(bench) * bus_factor(call->operation, call->P)), i = 0;
    for (uint64_t n; left > 0 && block > 0; left -= n, i++) {
        n = collectives_device_least(left, block);
        memcpy((char *)call->args.out + (uint64_t)turn * out + i % (out / block) * block,
               (const char *)call->args.in + (uint64_t)turn * in + i % (in / block) * block, n);
    }
}

static enum error_code run_once(struct bench *bench, const struct lane *lane, struct error *err)
{
    const struct collective *c = &bench->call.args;
    if (!lane->algorithm && lane->way >= LIMIT) {
        copy_alone(bench, lane->way == LIMIT ? bench->turn++ % bench->turns : 0);
        if (lane->way == IN_STEP) comm_barrier(bench->world);
        return OK;
    }
    if (lane->algorithm) return collective_run(bench->world->everyone, bench->call.operation,
                                               lane->algorithm->name, c, err);
    const struct peer_call p = {
        .in = c->in, .out = c->out, .count = c->count, .dtype = c->dtype, .reduction = c->reduction, .root = c->root
    };
    return peer_run(bench->world, (enum peer_way)lane->way, bench->call.operation, &p, err);
}

static double count_wrong(const struct bench *bench, const struct lane *lane)
{
    const struct collective *c = &bench->call.args;
    const bool in_in = !lane->algorithm && bench->call.operation == BROADCAST && bench->call.rank == c->root;
    double wrong = 0;
    if (!lane->algorithm && lane->way >= LIMIT) return 0;     /* they have no result */
    for (int64_t i = 0; i < exact_out_length(&bench->call); i++)
        wrong += !(exact_get(c->dtype, in_in ? c->in : c->out, i) == exact_out(&bench->call, i));
    return wrong;
}

/* Choose the number of calls to time together, from the quickest of a few calls on the slowest device. */
static enum error_code find_repeat(struct bench *bench, struct lane *lane, struct error *err)
{
    enum { TRIES = 4, WORTH_TIMING = 20, MOST = 500 };      /* WORTH_TIMING: milliseconds */
    double quickest = 1e9;
    enum error_code e = OK;
    for (int i = 0; i < TRIES && !e; i++) {
        comm_barrier(bench->world);
        const double start = measure_now();
        e = run_once(bench, lane, err);
        comm_barrier(bench->world);
        double took = measure_now() - start;
        if (!e) e = allreduce(bench->world->everyone, &took, 1, F64, MAX, NULL, err);
        if (took < quickest) quickest = took;
    }
    lane->repeat = (int64_t)(WORTH_TIMING * 1e-3 / quickest);
    if (lane->repeat < 1) lane->repeat = 1;
    if (lane->repeat > MOST) lane->repeat = MOST;
    return e;
}

/* Run once, and check result and counts. */
static enum error_code collectives_device_look_at(struct bench *bench, struct lane *lane, struct error *err)
{
    const struct traffic *t = &bench->world->counted.of[TRAFFIC_OTHER].of[bench->call.operation], before = *t;
    struct clock *clock = &bench->world->device->clock;
    memset(bench->call.args.out, 0xff, dtype_size(bench->call.args.dtype) * (size_t)exact_out_length(&bench->call));
    comm_barrier(bench->world);
    clock_reset(clock);
    enum error_code e = run_once(bench, lane, err);
    lane->counted[MESSAGES] = (double)(t->messages_sent - before.messages_sent);
    lane->counted[BYTES] = (double)(t->bytes_sent - before.bytes_sent);
    lane->counted[VIRTUAL] = (double)clock->now;
    if (!e) lane->counted[WRONG] = count_wrong(bench, lane);
    if (!e) e = allreduce(bench->world->everyone, lane->counted, COUNTED, F64, MAX, NULL, err);
    return e ? e : find_repeat(bench, lane, err);
}

static enum error_code time_lane(struct bench *bench, struct lane *lane, int run, struct error *err)
{
    enum error_code e = OK;
    comm_barrier(bench->world);
    const double start = measure_now(), busy = measure_processor();
    for (int64_t i = 0; i < lane->repeat && !e; i++) e = run_once(bench, lane, err);
    comm_barrier(bench->world);             /* with fewer cores than devices some begin when others have ended */
    lane->seconds[run] = (measure_now() - start) / (double)lane->repeat;
    lane->busy[run] = (measure_processor() - busy) / (double)lane->repeat;
    return e;
}

/* ---- one size ---------------------------------------------------------------------------------------------------- */

static void choose_lanes(struct bench *bench)
{
    bench->lanes = 0;
    bench->limited = has_limit(&bench->call, call_bytes(bench));
    for (int w = 0; w < (bench->limited ? WAYS : PEER_WAYS); w++)
        bench->lane[bench->lanes++] = (struct lane){ .way = w };
    for (int i = 0; i < bench->asked->algorithms; i++)
        if (!algorithm_refuses(bench->asked->algorithm[i], bench->call.P, &bench->call.args))
            bench->lane[bench->lanes++] = (struct lane){ .algorithm = bench->asked->algorithm[i] };
}

static enum error_code collectives_device_measure(struct bench *bench, struct error *err)
{
    enum error_code e = OK;
    choose_lanes(bench);
    for (int i = 0; i < bench->lanes && !e; i++) e = collectives_device_look_at(bench, &bench->lane[i], err);
    for (int run = 0; run < bench->asked->runs; run++)
        for (int i = 0; i < bench->lanes && !e; i++) e = time_lane(bench, &bench->lane[i], run, err);
    for (int i = 0; i < bench->lanes && !e; i++) {
        e = allreduce(bench->world->everyone, bench->lane[i].seconds, bench->asked->runs, F64, MAX, NULL, err);
        if (!e) e = allreduce(bench->world->everyone, bench->lane[i].busy, bench->asked->runs, F64, SUM, NULL, err);
        bench->lane[i].processors = measure_median(bench->lane[i].busy, bench->asked->runs);
        bench->lane[i].median = measure_median(bench->lane[i].seconds, bench->asked->runs);
        bench->lane[i].least = bench->lane[i].seconds[0];                       /* they have been sorted */
        bench->wrong = bench->wrong || bench->lane[i].counted[WRONG] > 0;
    }
    return e;
}

/* ---- what it says ------------------------------------------------------------------------------------------------ */

static void collectives_device_print_head(const struct bench *bench)
{
    const struct cluster *m = &bench->world->device->clock.cluster;
    printf("\n");
    say(stdout, 0, "%s, %d device%s on %d core%s, fp32, sum; medians of %d, all in turn; virtual time on %s",
        operation_name(bench->call.operation), bench->call.P, plural(bench->call.P), cores_usable(),
            plural(cores_usable()),
        bench->asked->runs, m->name);
    printf("\n");
}

static void add_lane(struct table *table, const struct bench *bench, const struct lane *lane)
{
    const double bandwidth = (double)call_bytes(bench) / lane->median * 1e-9;
    char counted[80] = "\t\t";
    if (lane->algorithm)
        snprintf(counted, sizeof counted, "%.0f\t%.0f\t%.3f", lane->counted[MESSAGES], lane->counted[BYTES],
                 lane->counted[VIRTUAL] * 1e-6);
    char limit[40] = "\t";
    if (bench->limited)
        snprintf(limit, sizeof limit, "%.2f\t%.2f", lane->median / bench->lane[LIMIT].median,
                 lane->least / bench->lane[LIMIT].least);
    table_row(table, "%s\t%lld\t%s\t%.1f\t%.1f\t%.3f\t%.3f\t%s\t%.0f\t%.2fx\t%.2fx\t%s",
              size_format(call_bytes(bench)).text,
              (long long)bench->call.args.count, lane_name(lane), lane->median * 1e6, lane->least * 1e6, bandwidth,
              bandwidth * bus_factor(bench->call.operation, bench->call.P), counted, lane->counted[WRONG],
              bench->lane[PEER_BLOCKING].median / lane->median,
                  bench->lane[PEER_YIELDING].median / lane->median, limit);
}

struct limits { char text[200]; };

static struct limits limits_text(const struct bench *bench, const struct lane *lane)
{
    struct limits t = { "" };
    const struct lane *alone = &bench->lane[LIMIT], *step = &bench->lane[IN_STEP];
    if (bench->limited)
        snprintf(t.text, sizeof t.text,
                 ", %.2f times as long as copies alone (%.2f by the least times, %.2f by time of processors), "
                 "%.2f times as long as copies in step (%.2f, %.2f)",
                 lane->median / alone->median, lane->least / alone->least, lane->processors / alone->processors,
                 lane->median / step->median, lane->least / step->least, lane->processors / step->processors);
    return t;
}

static void print_size(const struct bench *bench)
{
    const struct lane *best = NULL;
    const struct algorithm *chosen =
        algorithm_choose(bench->call.operation, bench->call.P, &bench->call.args, &bench->world->device->clock.cluster);
    struct table t = table_start(NULL, 3, "size\tcount\talgorithm\ttime us\tleast us\talg GB/s\tbus GB/s\tmessages"
                                          "\tbytes\tvirtual us\terrors\t/blocking\t/yielding\tx copies\tof least");
    for (int i = 0; i < bench->lanes; i++) {
        add_lane(&t, bench, &bench->lane[i]);
        if (bench->lane[i].algorithm && (!best || bench->lane[i].median < best->median)) best = &bench->lane[i];
    }
    table_end(&t);
    if (best)
        say(stdout, 8, "  best: %s, %.2f times as fast as MPI blocking, %.2f times as fast as MPI yielding%s;  "
            "auto: %s", lane_name(best), bench->lane[PEER_BLOCKING].median / best->median,
            bench->lane[PEER_YIELDING].median / best->median, limits_text(bench, best).text, chosen
                ? chosen->name : "none");
    printf("\n");
    fflush(stdout);
}

static void collectives_device_add_rows(const struct bench *bench)
{
    const struct algorithm *chosen =
        algorithm_choose(bench->call.operation, bench->call.P, &bench->call.args, &bench->world->device->clock.cluster);
    for (int i = 0; i < bench->lanes; i++) {
        const struct lane *l = &bench->lane[i];
        const double bandwidth = (double)call_bytes(bench) / l->median;
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "devices", bench->call.P);
        cJSON_AddNumberToObject(row, "bytes", (double)call_bytes(bench));
        cJSON_AddNumberToObject(row, "count", (double)bench->call.args.count);
        static const char *const others[] = { "blocking", "yielding", "copies", "copies in step" };
        cJSON_AddStringToObject(row, "by", l->algorithm ? "orrery" : l->way >= LIMIT ? "memory" : "MPI");
        cJSON_AddStringToObject(row, "algorithm", l->algorithm ? l->algorithm->name : others[l->way]);
        cJSON_AddNumberToObject(row, "median_seconds", l->median);
        cJSON_AddNumberToObject(row, "least_seconds", l->least);
        cJSON_AddNumberToObject(row, "processor_seconds", l->processors);
        cJSON_AddNumberToObject(row, "algorithm_bytes_per_second", bandwidth);
        cJSON_AddNumberToObject(row, "bus_bytes_per_second",
                                bandwidth * bus_factor(bench->call.operation, bench->call.P));
        if (l->algorithm) {
            cJSON_AddBoolToObject(row, "auto", l->algorithm == chosen);
            cJSON_AddNumberToObject(row, "messages", l->counted[MESSAGES]);
            cJSON_AddNumberToObject(row, "bytes_sent", l->counted[BYTES]);
            cJSON_AddNumberToObject(row, "virtual_picoseconds", l->counted[VIRTUAL]);
        }
        cJSON_AddNumberToObject(row, "errors", l->counted[WRONG]);
        cJSON_AddNumberToObject(row, "times_as_fast_as_blocking", bench->lane[PEER_BLOCKING].median / l->median);
        cJSON_AddNumberToObject(row, "times_as_fast_as_yielding", bench->lane[PEER_YIELDING].median / l->median);
        if (bench->limited) {
            cJSON_AddNumberToObject(row, "times_as_long_as_copies", l->median / bench->lane[LIMIT].median);
            cJSON_AddNumberToObject(row, "times_as_long_as_copies_in_step", l->median / bench->lane[IN_STEP].median);
        }
        cJSON_AddItemToArray(bench->rows, row);
    }
}

static enum error_code write_rows(struct bench *bench, struct error *err)
{
    cJSON *root = document_start("orrery bench collectives");
    cJSON_AddStringToObject(root, "operation", operation_name(bench->call.operation));
    cJSON_AddStringToObject(root, "dtype", dtype_name(bench->call.args.dtype));
    cJSON_AddStringToObject(root, "cluster", bench->world->device->clock.cluster.name);
    cJSON_AddNumberToObject(root, "cores", cores_usable());
    cJSON_AddNumberToObject(root, "runs", bench->asked->runs);
    cJSON_AddItemToObject(root, "rows", bench->rows);
    bench->rows = NULL;
    const enum error_code e = json_write(bench->asked->json, root, err);
    cJSON_Delete(root);
    return e;
}

/* ---- all sizes --------------------------------------------------------------------------------------------------- */

static enum error_code measure_size(struct bench *bench, uint64_t bytes, struct error *err)
{
    const int P = bench->world->size;
    int64_t count = (int64_t)(bytes / dtype_size(F32));
    if (bench->asked->operation == ALLTOALL) count = count < P ? 1 : count / P;
    if (bench->asked->operation == BARRIER) count = 0;
    bench->call = (struct exact_call){ bench->asked->operation, P, bench->world->rank,
                                   { .count = count, .dtype = F32, .nodes = group_nodes(bench->world->everyone) },
                                   false };
    const size_t in_bytes = dtype_size(F32) * (size_t)exact_in_length(&bench->call),
                 out_bytes = dtype_size(F32) * (size_t)exact_out_length(&bench->call);
    const size_t turns = (size_t)(bench->turns = turns_of(bench, in_bytes + out_bytes)), in_all = turns * in_bytes + 1,
                 out_all = turns * out_bytes + 1;
    void *in = host_block_take(in_all), *out = host_block_take(out_all);
    enum error_code e = in && out ? OK : fail(err, ERR_MEMORY, "no memory for vectors of %s", size_format(bytes).text);
    e = comm_agree(bench->world, e, err);
    if (!e) {
        bench->call.args.in = in, bench->call.args.out = out;
        memset(in, 0, in_all), memset(out, 0, out_all);
        for (int64_t i = 0; i < exact_in_length(&bench->call); i++) exact_put(F32, in, i, exact_in(&bench->call, i));
        e = collectives_device_measure(bench, err);
    }
    if (!e && bench->speaks && !bench->asked->quiet) print_size(bench);
    if (!e && bench->speaks && bench->rows) collectives_device_add_rows(bench);
    host_block_give(in, in_all), host_block_give(out, out_all);
    return e;
}

static enum error_code measure_all(struct bench *bench, struct error *err)
{
    const struct bench_collectives *a = bench->asked;
    enum error_code e = OK;
    if (a->jobs > 0 && (a->jobs != 1 || a->devices[0] != bench->world->size))
        return fail(err, ERR_USAGE, "--devices: the launcher has started %d", bench->world->size);
    bench->speaks = bench->world->rank == 0;
    bench->rows = bench->speaks && a->json ? cJSON_CreateArray() : NULL;
    bench->call = (struct exact_call){ .operation = a->operation, .P = bench->world->size };
    if (bench->speaks && !a->quiet) collectives_device_print_head(bench);
    for (int i = 0; i < a->sizes && !e; i++) e = measure_size(bench, a->bytes[i], err);
    if (!e && bench->rows) e = write_rows(bench, err);
    if (!e && bench->wrong)
        e = fail(err, ERR_CHECK, "%s on %d devices: wrong elements; see the table", operation_name(a->operation),
                 bench->world->size);
    cJSON_Delete(bench->rows);
    return comm_agree(bench->world, e, err);
}

enum error_code bench_collectives_device(struct comm *world, const void *asked, struct error *err)
{
    struct bench *b = calloc(1, sizeof *b);
    enum error_code e = comm_agree(world, b ? OK : fail(err, ERR_MEMORY, "no memory to measure"), err);
    if (!e) {
        b->asked = asked, b->world = world;
        e = measure_all(b, err);
    }
    free(b);
    return e;
}
