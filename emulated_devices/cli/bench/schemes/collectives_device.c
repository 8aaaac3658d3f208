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

static const char *lane_name(const struct lane *l)
{
    static const char *const others[] = { "MPI, blocking", "MPI, yielding", "copies alone", "copies in step" };
    return l->algorithm ? l->algorithm->name : others[l->way];
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

static uint64_t call_bytes(const struct bench *b)
{
    if (b->call.operation == BARRIER) return 0;
    return dtype_size(b->call.args.dtype) * (uint64_t)b->call.args.count *
           (b->call.operation == ALLTOALL ? (uint64_t)b->call.P : 1);
}

/* Whether copying alone is a limit: every device has to receive as much as the others, and more than the head. */
static bool has_limit(const struct exact_call *call, uint64_t bytes)
{
    const enum operation op = call->operation;
    return (op == ALLREDUCE || op == REDUCE_SCATTER || op == ALLGATHER || op == ALLTOALL) && call->P > 1 &&
           bytes / (uint64_t)call->P >= 1024;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* So many that the devices that have a core go through as much memory as all devices have in a collective. */
static int turns_of(const struct bench *b, size_t vectors)
{
    const uint64_t all_at_most = UINT64_C(1) << 30;
    const uint64_t P = (uint64_t)b->call.P, cores = (uint64_t)cores_usable(),
                   wanted = (P + cores - 1) / cores, room = all_at_most / P / (vectors + 1);
    return (int)(room < 1 ? 1 : least(wanted, room));
}

static void copy_alone(const struct bench *b, int turn)
{
    const struct exact_call *call = &b->call;
    const uint64_t each = dtype_size(call->args.dtype), in = each * (uint64_t)exact_in_length(call),
                   out = each * (uint64_t)exact_out_length(call);
    const uint64_t block = least(least(in, out), call_bytes(b) / (uint64_t)call->P);
    uint64_t left = (uint64_t)((double)call_bytes(b) * bus_factor(call->operation, call->P)), i = 0;
    for (uint64_t n; left > 0 && block > 0; left -= n, i++) {
        n = least(left, block);
        memcpy((char *)call->args.out + (uint64_t)turn * out + i % (out / block) * block,
               (const char *)call->args.in + (uint64_t)turn * in + i % (in / block) * block, n);
    }
}

static enum error_code run_once(struct bench *b, const struct lane *l, struct error *err)
{
    const struct collective *c = &b->call.args;
    if (!l->algorithm && l->way >= LIMIT) {
        copy_alone(b, l->way == LIMIT ? b->turn++ % b->turns : 0);
        if (l->way == IN_STEP) comm_barrier(b->world);
        return OK;
    }
    if (l->algorithm) return collective_run(b->world->everyone, b->call.operation, l->algorithm->name, c, err);
    const struct peer_call p = {
        .in = c->in, .out = c->out, .count = c->count, .dtype = c->dtype, .reduction = c->reduction, .root = c->root
    };
    return peer_run(b->world, (enum peer_way)l->way, b->call.operation, &p, err);
}

static double count_wrong(const struct bench *b, const struct lane *l)
{
    const struct collective *c = &b->call.args;
    const bool in_in = !l->algorithm && b->call.operation == BROADCAST && b->call.rank == c->root;
    double wrong = 0;
    if (!l->algorithm && l->way >= LIMIT) return 0;     /* they have no result */
    for (int64_t i = 0; i < exact_out_length(&b->call); i++)
        wrong += !(exact_get(c->dtype, in_in ? c->in : c->out, i) == exact_out(&b->call, i));
    return wrong;
}

/* Choose the number of calls to time together, from the quickest of a few calls on the slowest device. */
static enum error_code find_repeat(struct bench *b, struct lane *l, struct error *err)
{
    enum { TRIES = 4, WORTH_TIMING = 20, MOST = 500 };      /* WORTH_TIMING: milliseconds */
    double quickest = 1e9;
    enum error_code e = OK;
    for (int i = 0; i < TRIES && !e; i++) {
        comm_barrier(b->world);
        const double start = measure_now();
        e = run_once(b, l, err);
        comm_barrier(b->world);
        double took = measure_now() - start;
        if (!e) e = allreduce(b->world->everyone, &took, 1, F64, MAX, NULL, err);
        if (took < quickest) quickest = took;
    }
    l->repeat = (int64_t)(WORTH_TIMING * 1e-3 / quickest);
    if (l->repeat < 1) l->repeat = 1;
    if (l->repeat > MOST) l->repeat = MOST;
    return e;
}

/* Run once, and check result and counts. */
static enum error_code look_at(struct bench *b, struct lane *l, struct error *err)
{
    const struct traffic *t = &b->world->counted.of[TRAFFIC_OTHER].of[b->call.operation], before = *t;
    struct clock *clock = &b->world->device->clock;
    memset(b->call.args.out, 0xff, dtype_size(b->call.args.dtype) * (size_t)exact_out_length(&b->call));
    comm_barrier(b->world);
    clock_reset(clock);
    enum error_code e = run_once(b, l, err);
    l->counted[MESSAGES] = (double)(t->messages_sent - before.messages_sent);
    l->counted[BYTES] = (double)(t->bytes_sent - before.bytes_sent);
    l->counted[VIRTUAL] = (double)clock->now;
    if (!e) l->counted[WRONG] = count_wrong(b, l);
    if (!e) e = allreduce(b->world->everyone, l->counted, COUNTED, F64, MAX, NULL, err);
    return e ? e : find_repeat(b, l, err);
}

static enum error_code time_lane(struct bench *b, struct lane *l, int run, struct error *err)
{
    enum error_code e = OK;
    comm_barrier(b->world);
    const double start = measure_now(), busy = measure_processor();
    for (int64_t i = 0; i < l->repeat && !e; i++) e = run_once(b, l, err);
    comm_barrier(b->world);             /* with fewer cores than devices some begin when others have ended */
    l->seconds[run] = (measure_now() - start) / (double)l->repeat;
    l->busy[run] = (measure_processor() - busy) / (double)l->repeat;
    return e;
}

/* ---- one size ---------------------------------------------------------------------------------------------------- */

static void choose_lanes(struct bench *b)
{
    b->lanes = 0;
    b->limited = has_limit(&b->call, call_bytes(b));
    for (int w = 0; w < (b->limited ? WAYS : PEER_WAYS); w++) b->lane[b->lanes++] = (struct lane){ .way = w };
    for (int i = 0; i < b->asked->algorithms; i++)
        if (!algorithm_refuses(b->asked->algorithm[i], b->call.P, &b->call.args))
            b->lane[b->lanes++] = (struct lane){ .algorithm = b->asked->algorithm[i] };
}

static enum error_code measure(struct bench *b, struct error *err)
{
    enum error_code e = OK;
    choose_lanes(b);
    for (int i = 0; i < b->lanes && !e; i++) e = look_at(b, &b->lane[i], err);
    for (int run = 0; run < b->asked->runs; run++)
        for (int i = 0; i < b->lanes && !e; i++) e = time_lane(b, &b->lane[i], run, err);
    for (int i = 0; i < b->lanes && !e; i++) {
        e = allreduce(b->world->everyone, b->lane[i].seconds, b->asked->runs, F64, MAX, NULL, err);
        if (!e) e = allreduce(b->world->everyone, b->lane[i].busy, b->asked->runs, F64, SUM, NULL, err);
        b->lane[i].processors = measure_median(b->lane[i].busy, b->asked->runs);
        b->lane[i].median = measure_median(b->lane[i].seconds, b->asked->runs);
        b->lane[i].least = b->lane[i].seconds[0];                       /* they have been sorted */
        b->wrong = b->wrong || b->lane[i].counted[WRONG] > 0;
    }
    return e;
}

/* ---- what it says ------------------------------------------------------------------------------------------------ */

static void print_head(const struct bench *b)
{
    const struct cluster *m = &b->world->device->clock.cluster;
    printf("\n");
    say(stdout, 0, "%s, %d device%s on %d core%s, fp32, sum; medians of %d, all in turn; virtual time on %s",
        operation_name(b->call.operation), b->call.P, plural(b->call.P), cores_usable(), plural(cores_usable()),
        b->asked->runs, m->name);
    printf("\n");
}

static void add_lane(struct table *t, const struct bench *b, const struct lane *l)
{
    const double bandwidth = (double)call_bytes(b) / l->median * 1e-9;
    char counted[80] = "\t\t";
    if (l->algorithm)
        snprintf(counted, sizeof counted, "%.0f\t%.0f\t%.3f", l->counted[MESSAGES], l->counted[BYTES],
                 l->counted[VIRTUAL] * 1e-6);
    char limit[40] = "\t";
    if (b->limited)
        snprintf(limit, sizeof limit, "%.2f\t%.2f", l->median / b->lane[LIMIT].median, l->least / b->lane[LIMIT].least);
    table_row(t, "%s\t%lld\t%s\t%.1f\t%.1f\t%.3f\t%.3f\t%s\t%.0f\t%.2fx\t%.2fx\t%s", size_format(call_bytes(b)).text,
              (long long)b->call.args.count, lane_name(l), l->median * 1e6, l->least * 1e6, bandwidth,
              bandwidth * bus_factor(b->call.operation, b->call.P), counted, l->counted[WRONG],
              b->lane[PEER_BLOCKING].median / l->median, b->lane[PEER_YIELDING].median / l->median, limit);
}

struct limits { char text[200]; };

static struct limits limits_text(const struct bench *b, const struct lane *l)
{
    struct limits t = { "" };
    const struct lane *alone = &b->lane[LIMIT], *step = &b->lane[IN_STEP];
    if (b->limited)
        snprintf(t.text, sizeof t.text,
                 ", %.2f times as long as copies alone (%.2f by the least times, %.2f by time of processors), "
                 "%.2f times as long as copies in step (%.2f, %.2f)",
                 l->median / alone->median, l->least / alone->least, l->processors / alone->processors,
                 l->median / step->median, l->least / step->least, l->processors / step->processors);
    return t;
}

static void print_size(const struct bench *b)
{
    const struct lane *best = NULL;
    const struct algorithm *chosen =
        algorithm_choose(b->call.operation, b->call.P, &b->call.args, &b->world->device->clock.cluster);
    struct table t = table_start(NULL, 3, "size\tcount\talgorithm\ttime us\tleast us\talg GB/s\tbus GB/s\tmessages"
                                          "\tbytes\tvirtual us\terrors\t/blocking\t/yielding\tx copies\tof least");
    for (int i = 0; i < b->lanes; i++) {
        add_lane(&t, b, &b->lane[i]);
        if (b->lane[i].algorithm && (!best || b->lane[i].median < best->median)) best = &b->lane[i];
    }
    table_end(&t);
    if (best)
        say(stdout, 8, "  best: %s, %.2f times as fast as MPI blocking, %.2f times as fast as MPI yielding%s;  "
            "auto: %s", lane_name(best), b->lane[PEER_BLOCKING].median / best->median,
            b->lane[PEER_YIELDING].median / best->median, limits_text(b, best).text, chosen ? chosen->name : "none");
    printf("\n");
    fflush(stdout);
}

static void add_rows(const struct bench *b)
{
    const struct algorithm *chosen =
        algorithm_choose(b->call.operation, b->call.P, &b->call.args, &b->world->device->clock.cluster);
    for (int i = 0; i < b->lanes; i++) {
        const struct lane *l = &b->lane[i];
        const double bandwidth = (double)call_bytes(b) / l->median;
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "devices", b->call.P);
        cJSON_AddNumberToObject(row, "bytes", (double)call_bytes(b));
        cJSON_AddNumberToObject(row, "count", (double)b->call.args.count);
        static const char *const others[] = { "blocking", "yielding", "copies", "copies in step" };
        cJSON_AddStringToObject(row, "by", l->algorithm ? "orrery" : l->way >= LIMIT ? "memory" : "MPI");
        cJSON_AddStringToObject(row, "algorithm", l->algorithm ? l->algorithm->name : others[l->way]);
        cJSON_AddNumberToObject(row, "median_seconds", l->median);
        cJSON_AddNumberToObject(row, "least_seconds", l->least);
        cJSON_AddNumberToObject(row, "processor_seconds", l->processors);
        cJSON_AddNumberToObject(row, "algorithm_bytes_per_second", bandwidth);
        cJSON_AddNumberToObject(row, "bus_bytes_per_second", bandwidth * bus_factor(b->call.operation, b->call.P));
        if (l->algorithm) {
            cJSON_AddBoolToObject(row, "auto", l->algorithm == chosen);
            cJSON_AddNumberToObject(row, "messages", l->counted[MESSAGES]);
            cJSON_AddNumberToObject(row, "bytes_sent", l->counted[BYTES]);
            cJSON_AddNumberToObject(row, "virtual_picoseconds", l->counted[VIRTUAL]);
        }
        cJSON_AddNumberToObject(row, "errors", l->counted[WRONG]);
        cJSON_AddNumberToObject(row, "times_as_fast_as_blocking", b->lane[PEER_BLOCKING].median / l->median);
        cJSON_AddNumberToObject(row, "times_as_fast_as_yielding", b->lane[PEER_YIELDING].median / l->median);
        if (b->limited) {
            cJSON_AddNumberToObject(row, "times_as_long_as_copies", l->median / b->lane[LIMIT].median);
            cJSON_AddNumberToObject(row, "times_as_long_as_copies_in_step", l->median / b->lane[IN_STEP].median);
        }
        cJSON_AddItemToArray(b->rows, row);
    }
}

static enum error_code write_rows(struct bench *b, struct error *err)
{
    cJSON *root = document_start("orrery bench collectives");
    cJSON_AddStringToObject(root, "operation", operation_name(b->call.operation));
    cJSON_AddStringToObject(root, "dtype", dtype_name(b->call.args.dtype));
    cJSON_AddStringToObject(root, "cluster", b->world->device->clock.cluster.name);
    cJSON_AddNumberToObject(root, "cores", cores_usable());
    cJSON_AddNumberToObject(root, "runs", b->asked->runs);
    cJSON_AddItemToObject(root, "rows", b->rows);
    b->rows = NULL;
    const enum error_code e = json_write(b->asked->json, root, err);
    cJSON_Delete(root);
    return e;
}

/* ---- all sizes --------------------------------------------------------------------------------------------------- */

static enum error_code measure_size(struct bench *b, uint64_t bytes, struct error *err)
{
    const int P = b->world->size;
    int64_t count = (int64_t)(bytes / dtype_size(F32));
    if (b->asked->operation == ALLTOALL) count = count < P ? 1 : count / P;
    if (b->asked->operation == BARRIER) count = 0;
    b->call = (struct exact_call){ b->asked->operation, P, b->world->rank,
                                   { .count = count, .dtype = F32, .nodes = group_nodes(b->world->everyone) },
                                   false };
    const size_t in_bytes = dtype_size(F32) * (size_t)exact_in_length(&b->call),
                 out_bytes = dtype_size(F32) * (size_t)exact_out_length(&b->call);
    const size_t turns = (size_t)(b->turns = turns_of(b, in_bytes + out_bytes)), in_all = turns * in_bytes + 1,
                 out_all = turns * out_bytes + 1;
    void *in = host_block_take(in_all), *out = host_block_take(out_all);
    enum error_code e = in && out ? OK : fail(err, ERR_MEMORY, "no memory for vectors of %s", size_format(bytes).text);
    e = comm_agree(b->world, e, err);
    if (!e) {
        b->call.args.in = in, b->call.args.out = out;
        memset(in, 0, in_all), memset(out, 0, out_all);
        for (int64_t i = 0; i < exact_in_length(&b->call); i++) exact_put(F32, in, i, exact_in(&b->call, i));
        e = measure(b, err);
    }
    if (!e && b->speaks && !b->asked->quiet) print_size(b);
    if (!e && b->speaks && b->rows) add_rows(b);
    host_block_give(in, in_all), host_block_give(out, out_all);
    return e;
}

static enum error_code measure_all(struct bench *b, struct error *err)
{
    const struct bench_collectives *a = b->asked;
    enum error_code e = OK;
    if (a->jobs > 0 && (a->jobs != 1 || a->devices[0] != b->world->size))
        return fail(err, ERR_USAGE, "--devices: the launcher has started %d", b->world->size);
    b->speaks = b->world->rank == 0;
    b->rows = b->speaks && a->json ? cJSON_CreateArray() : NULL;
    b->call = (struct exact_call){ .operation = a->operation, .P = b->world->size };
    if (b->speaks && !a->quiet) print_head(b);
    for (int i = 0; i < a->sizes && !e; i++) e = measure_size(b, a->bytes[i], err);
    if (!e && b->rows) e = write_rows(b, err);
    if (!e && b->wrong)
        e = fail(err, ERR_CHECK, "%s on %d devices: wrong elements; see the table", operation_name(a->operation),
                 b->world->size);
    cJSON_Delete(b->rows);
    return comm_agree(b->world, e, err);
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
