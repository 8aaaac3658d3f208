/* collectives_device.c -- one device of the benchmark: runs every algorithm and MPI's own, in turn, with every size.
 * cli/bench/schemes/collectives_table.c calls these functions.  Errors: ERR_USAGE for another number of devices,
 * ERR_CHECK for a wrong result, ERR_MEMORY. */
#include "emulated_devices/bench/schemes/collectives.h"
#include "ref/machine/measure.h"
#include "emulated_devices/comm/peer.h"
#include "emulated_devices/device/pool.h"
#include "emulated_devices/verify/cases/exact.h"
#include "ref/io/figures.h"
#include "ref/machine/cores.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *collectives_lane_name(const struct collectives_lane *lane)
{
    const char *const others[] = { "MPI, blocking", "MPI, yielding", "copies alone", "copies in step" };
    return lane->algorithm ? lane->algorithm->name : others[lane->way];
}

/* ---- running one lane -------------------------------------------------------------------------------------------- */

/* The part of the vector that each link must carry, as in nccl-tests. */
double collectives_bus_factor(enum operation op, int P)
{
    switch (op) {
    case ALLREDUCE: return 2.0 * (P - 1) / P;
    case REDUCE_SCATTER: case ALLGATHER: case ALLTOALL: case GATHER: case SCATTER: case SPARSE_ALLGATHER:
    case SPARSE_REDUCE_SCATTER: return (double)(P - 1) / P;
    default: return 1;
    }
}

uint64_t collectives_bytes(const struct collectives_bench *bench)
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
static int turns_of(const struct collectives_bench *bench, size_t vectors)
{
    const uint64_t all_at_most = UINT64_C(1) << 30;
    const uint64_t P = (uint64_t)bench->call.P, cores = (uint64_t)cores_usable(),
                   wanted = (P + cores - 1) / cores, room = all_at_most / P / (vectors + 1);
    return (int)(room < 1 ? 1 : collectives_device_least(wanted, room));
}

static void copy_alone(const struct collectives_bench *bench, int turn)
{
    const struct exact_call *call = &bench->call;
    const uint64_t each = dtype_size(call->args.dtype), in = each * (uint64_t)exact_in_length(call),
                   out = each * (uint64_t)exact_out_length(call);
    const uint64_t block = collectives_device_least(collectives_device_least(in, out),
                                                    collectives_bytes(bench) / (uint64_t)call->P);
    uint64_t left = (uint64_t)((double)collectives_bytes(bench) * collectives_bus_factor(call->operation, call->P)),
        i = 0;
    for (uint64_t n; left > 0 && block > 0; left -= n, i++) {
        n = collectives_device_least(left, block);
        memcpy((char *)call->args.out + (uint64_t)turn * out + i % (out / block) * block,
               (const char *)call->args.in + (uint64_t)turn * in + i % (in / block) * block, n);
    }
}

static enum error_code run_once(struct collectives_bench *bench, const struct collectives_lane *lane, struct error *err)
{
    const struct collective *c = &bench->call.args;
    if (!lane->algorithm && lane->way >= WAY_LIMIT) {
        copy_alone(bench, lane->way == WAY_LIMIT ? bench->turn++ % bench->turns : 0);
        if (lane->way == WAY_IN_STEP) comm_barrier(bench->world);
        return OK;
    }
    if (lane->algorithm) return collective_run(bench->world->everyone, bench->call.operation,
                                               lane->algorithm->name, c, err);
    const struct peer_call p = {
        .in = c->in, .out = c->out, .count = c->count, .dtype = c->dtype, .reduction = c->reduction, .root = c->root
    };
    return peer_run(bench->world, (enum peer_way)lane->way, bench->call.operation, &p, err);
}

static double count_wrong(const struct collectives_bench *bench, const struct collectives_lane *lane)
{
    const struct collective *c = &bench->call.args;
    const bool in_in = !lane->algorithm && bench->call.operation == BROADCAST && bench->call.rank == c->root;
    double wrong = 0;
    if (!lane->algorithm && lane->way >= WAY_LIMIT) return 0;     /* they have no result */
    for (int64_t i = 0; i < exact_out_length(&bench->call); i++)
        wrong += !(exact_get(c->dtype, in_in ? c->in : c->out, i) == exact_out(&bench->call, i));
    return wrong;
}

/* Choose the number of calls to time together, from the quickest of a few calls on the slowest device. */
static enum error_code find_repeat(struct collectives_bench *bench, struct collectives_lane *lane, struct error *err)
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
static enum error_code collectives_device_look_at(struct collectives_bench *bench, struct collectives_lane *lane,
                                                  struct error *err)
{
    const struct traffic *t = &bench->world->counted.of[TRAFFIC_OTHER].of[bench->call.operation], before = *t;
    struct clock *clock = &bench->world->device->clock;
    memset(bench->call.args.out, 0xff, dtype_size(bench->call.args.dtype) * (size_t)exact_out_length(&bench->call));
    comm_barrier(bench->world);
    clock_reset(clock);
    enum error_code e = run_once(bench, lane, err);
    lane->counted[LANE_MESSAGES] = (double)(t->messages_sent - before.messages_sent);
    lane->counted[LANE_BYTES] = (double)(t->bytes_sent - before.bytes_sent);
    lane->counted[LANE_VIRTUAL] = (double)clock->now;
    if (!e) lane->counted[LANE_WRONG] = count_wrong(bench, lane);
    if (!e) e = allreduce(bench->world->everyone, lane->counted, LANE_COUNTED, F64, MAX, NULL, err);
    return e ? e : find_repeat(bench, lane, err);
}

static enum error_code time_lane(struct collectives_bench *bench, struct collectives_lane *lane, int run,
                                 struct error *err)
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

static void choose_lanes(struct collectives_bench *bench)
{
    bench->lanes = 0;
    bench->limited = has_limit(&bench->call, collectives_bytes(bench));
    for (int w = 0; w < (bench->limited ? WAYS_ALL : PEER_WAYS); w++)
        bench->lane[bench->lanes++] = (struct collectives_lane){ .way = w };
    for (int i = 0; i < bench->asked->algorithms; i++)
        if (!algorithm_refuses(bench->asked->algorithm[i], bench->call.P, &bench->call.args))
            bench->lane[bench->lanes++] = (struct collectives_lane){ .algorithm = bench->asked->algorithm[i] };
}

static enum error_code collectives_device_measure(struct collectives_bench *bench, struct error *err)
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
        bench->wrong = bench->wrong || bench->lane[i].counted[LANE_WRONG] > 0;
    }
    return e;
}

/* ---- all sizes --------------------------------------------------------------------------------------------------- */

static enum error_code measure_size(struct collectives_bench *bench, uint64_t bytes, struct error *err)
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
    if (!e && bench->speaks) bench->listener->measured(bench->listener->context, bench);
    host_block_give(in, in_all), host_block_give(out, out_all);
    return e;
}

static enum error_code measure_all(struct collectives_bench *bench, struct error *err)
{
    const struct bench_collectives *a = bench->asked;
    enum error_code e = OK;
    if (a->jobs > 0 && (a->jobs != 1 || a->devices[0] != bench->world->size))
        return fail(err, ERR_USAGE, "--devices: the launcher has started %d", bench->world->size);
    bench->speaks = bench->world->rank == 0;
    bench->call = (struct exact_call){ .operation = a->operation, .P = bench->world->size };
    if (bench->speaks) bench->listener->begins(bench->listener->context, bench);
    for (int i = 0; i < a->sizes && !e; i++) e = measure_size(bench, a->bytes[i], err);
    if (!e && bench->wrong)
        e = fail(err, ERR_CHECK, "%s on %d devices: wrong elements; see the table", operation_name(a->operation),
                 bench->world->size);
    return comm_agree(bench->world, e, err);
}

enum error_code collectives_measure(struct comm *world, const struct bench_collectives *asked,
                                    const struct collectives_listener *listener, struct error *err)
{
    struct collectives_bench *b = calloc(1, sizeof *b);
    enum error_code e = comm_agree(world, b ? OK : fail(err, ERR_MEMORY, "no memory to measure"), err);
    if (!e) {
        b->asked = asked, b->listener = listener, b->world = world;
        e = measure_all(b, err);
    }
    free(b);
    return e;
}
