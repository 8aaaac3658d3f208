/* engine_record.c -- keeps the answers of a device, and brings those of all devices to rank 0.  engine.c calls.
 * Errors: ERR_MEMORY; ERR_CHECK if messages are not those of the formulas. */
#include "emulated_devices/serve/engine_parts.h"
#include <stdlib.h>
#include <string.h>

/* ---- the record of a device -------------------------------------------------------------------------------------- */

/* Every device has room for all answers, so that rank 0 can take each from the device that has drawn it. */
enum error_code record_open(struct serving_record *record, const struct requests *requests, struct error *err)
{
    const size_t n = (size_t)requests->count;
    *record = (struct serving_record){ .requests = requests->count };
    record->first = calloc(n + 1, sizeof *record->first);
    record->answer = calloc(n + 1, sizeof *record->answer);
    for (size_t i = 0; i < n && record->first; i++) record->first[i + 1] = record->first[i] + requests->at[i].most;
    const size_t tokens = record->first ? (size_t)record->first[n] : 0;
    record->token = calloc(tokens + 1, sizeof *record->token);
    record->time = calloc(tokens + 1, sizeof *record->time);
    if (record->first && record->answer && record->token && record->time) return OK;
    return fail(err, ERR_MEMORY, "no memory for the answers of %zu requests", n);
}

void serving_record_free(struct serving_record *record)
{
    free(record->answer), free(record->first), free(record->token), free(record->time), free(record->replica);
    *record = (struct serving_record){ 0 };
}

/* ---- the record of all devices ----------------------------------------------------------------------------------- */

int device_that_draws(const struct plan *plan, int64_t replica)
{
    return mesh_neighbour(&plan->mesh, mesh_neighbour(&plan->mesh, 0, DP, (int)replica), PP, plan->mesh.size[PP] - 1);
}

/* A list with an entry for each request, or for each of the tokens that it may have. */
struct answers_list { char *at; size_t each; bool by_token; };

static int64_t replica_with(const struct engine *engine, int64_t request)
{
    return replica_of_answer(engine->job, engine_plan(engine)->mesh.size[DP], request);
}

static int64_t entries_of(const struct engine *engine, const struct answers_list *list, int64_t request)
{
    return list->by_token ? engine->record.first[request + 1] - engine->record.first[request] : 1;
}

/* Bytes of the part of the replica that has most of a list.  Without memory 0. */
static size_t largest_part(const struct engine *engine, const struct answers_list *list)
{
    const int replicas = engine_plan(engine)->mesh.size[DP];
    int64_t *const of = calloc((size_t)replicas, sizeof *of), most = 1;
    for (int64_t i = 0; i < engine->record.requests && of; i++)
        of[replica_with(engine, i)] += entries_of(engine, list, i);
    for (int r = 0; r < replicas && of; r++) most = of[r] > most ? of[r] : most;
    const size_t bytes = of ? (size_t)most * list->each : 0;
    free(of);
    return bytes;
}

/* Copy a replica's part of a list to its place in the whole list, or from there. */
static void move_part(const struct engine *engine, int64_t replica, const struct answers_list *list, char *part,
                      bool to_list)
{
    for (int64_t i = 0; i < engine->record.requests; i++) {
        if (replica_with(engine, i) != replica) continue;
        char *const place = list->at + (size_t)(list->by_token ? engine->record.first[i] : i) * list->each;
        const size_t bytes = (size_t)entries_of(engine, list, i) * list->each;
        memcpy(to_list ? place : part, to_list ? part : place, bytes);
        part += bytes;
    }
}

/* Bring a list to rank 0: each device its replica's part, of which those of devices that draw are taken. */
static enum error_code bring_list(struct engine *engine, struct answers_list own, void *to, struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    const struct plan *const p = engine_plan(engine);
    const struct answers_list whole = { to, own.each, own.by_token };
    const size_t bytes = largest_part(engine, &own);
    char *const part = bytes ? calloc(1, bytes) : NULL;
    char *const all = comm->rank == 0 ? malloc(bytes * (size_t)comm->size + 1) : NULL;
    const bool ok = part && (all || comm->rank > 0);
    enum error_code e = comm_agree(comm, ok ? OK : fail(err, ERR_MEMORY, "no memory for the answers of all devices"),
                                   err);
    if (!e) move_part(engine, engine->number, &own, part, false);
    if (!e) e = comm_bring(comm, part, bytes, all, err);
    for (int64_t r = 0; r < p->mesh.size[DP] && !e && comm->rank == 0; r++)
        move_part(engine, r, &whole, all + (size_t)device_that_draws(p, r) * bytes, true);
    free(part), free(all);
    return e;
}

/* Copies to the host and back must be those that the scheduler has planned. */
static enum error_code check_swaps(const struct engine *engine, struct error *err)
{
    const struct serving_counts *const c = &engine->scheduler.counts;
    const struct tier_traffic planned = pages_swapped(&engine->pages, c->outs, c->ins),
                              *const counted = &engine->pages.tier.traffic;
    if (planned.reads == counted->reads && planned.bytes_read == counted->bytes_read &&
        planned.writes == counted->writes && planned.bytes_written == counted->bytes_written)
        return OK;
    return fail(err, ERR_CHECK, "device %d: it has copied %llu bytes to the host and %llu back; the scheduler's blocks "
                "are %llu and %llu", engine->trainer->comm->rank, (unsigned long long)counted->bytes_written,
                (unsigned long long)counted->bytes_read, (unsigned long long)planned.bytes_written,
                (unsigned long long)planned.bytes_read);
}

static struct window_counts window_of(const struct engine *engine)
{
    const struct data_parallel *const data = &engine->trainer->data;
    if (engine_plan(engine)->data.offload == 0) return (struct window_counts){ .most = 0 };
    return (struct window_counts){ device_of(engine)->arena.peak.tag[PARAMETERS], data_peak(data).weights,
                                   data_tier_traffic_so_far(data) };
}

/* Each pass reads every part once; those of the window's next parts are read once more, before the first. */
static enum error_code check_window(const struct engine *engine, struct error *err)
{
    const struct data_parallel *const data = &engine->trainer->data;
    const struct window_counts w = window_of(engine);
    struct tier_traffic want = { 0 };
    if (engine_plan(engine)->data.offload == 0 || engine->passes == 0) return OK;
    tier_traffic_add(&want, data_tier_traffic(data), (uint64_t)engine->passes);
    tier_traffic_add(&want, data_first_moves(data), 1);
    if (w.most != w.predicted)
        return fail(err, ERR_CHECK, "device %d: it had %llu bytes of weights at most; the formula says %llu",
                    engine->trainer->comm->rank, (unsigned long long)w.most, (unsigned long long)w.predicted);
    if (w.read.reads == want.reads && w.read.bytes_read == want.bytes_read) return OK;
    return fail(err, ERR_CHECK, "device %d: it has read %llu bytes of weights in %llu copies; %lld passes are %llu in "
                "%llu", engine->trainer->comm->rank, (unsigned long long)w.read.bytes_read,
                (unsigned long long)w.read.reads, (long long)engine->passes, (unsigned long long)want.bytes_read,
                (unsigned long long)want.reads);
}

/* The messages that were sent must be those that the formulas of their senders say. */
static enum error_code check_messages(const struct comm *comm, struct error *err)
{
    for (enum traffic_kind kind = 0; kind < TRAFFIC_KIND_COUNT; kind++)
        for (enum operation op = 0; op < CONTROL; op++)
            for (int level = -1; level < CLUSTER_LEVELS; level++)
                if (!traffic_equal(&comm->counted.of[kind].of[op], &comm->expected.of[kind].of[op], level))
                    return fail(err, ERR_CHECK, "device %d: its %s %s messages are not those that the formulas say",
                                comm->rank, traffic_kind_name(kind), operation_name(op));
    return OK;
}

static uint64_t dispatched_by(const struct comm *comm)
{
    uint64_t bytes = 0;
    for (enum operation op = 0; op < CONTROL; op++) bytes += comm->counted.of[TRAFFIC_EXPERTS].of[op].bytes_sent;
    return bytes;
}

enum error_code bring_counts(struct engine *engine, struct serving_record *to, struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    const struct plan *const p = engine_plan(engine);
    const struct replica_counts own = { .counts = engine->scheduler.counts, .end = engine->now,
                                        .proposals = engine->drawing.proposer.counts,
                                        .free_blocks = engine->scheduler.pool.free,
                                        .cache_bytes = pages_bytes(&engine->pages),
                                        .free_host = engine->scheduler.host.free,
                                        .host = engine->pages.tier.traffic, .nano = engine->nano.counts,
                                        .window = window_of(engine), .dispatched = dispatched_by(comm) };
    struct replica_counts *const all = calloc((size_t)comm->size, sizeof *all);
    to->replicas = p->mesh.size[DP];
    to->replica = calloc((size_t)to->replicas, sizeof *to->replica);
    enum error_code e = comm_agree(comm, check_messages(comm, err), err);
    if (!e) e = comm_agree(comm, check_swaps(engine, err), err);
    if (!e) e = comm_agree(comm, check_window(engine, err), err);
    if (!e && !(all && to->replica)) e = fail(err, ERR_MEMORY, "no memory for the counts of all devices");
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, &own, sizeof own, all, err);
    for (int64_t r = 0; r < to->replicas && !e && comm->rank == 0; r++) to->replica[r] = all[device_that_draws(p, r)];
    for (int d = 0; d < comm->size && !e && comm->rank == 0; d++) to->dispatched += all[d].dispatched;
    free(all);
    return e;
}

enum error_code bring_record(struct engine *engine, struct serving_record *to, struct error *err)
{
    struct serving_record *const own = &engine->record;
    struct comm *const comm = engine->trainer->comm;
    enum error_code e = comm_agree(comm, record_open(to, engine->job->requests, err), err);
    if (!e) e = bring_list(engine, (struct answers_list){ (char *)own->answer, sizeof *own->answer, false },
                           to->answer, err);
    if (!e) e = bring_list(engine, (struct answers_list){ (char *)own->token, sizeof *own->token, true }, to->token,
                           err);
    if (!e) e = bring_list(engine, (struct answers_list){ (char *)own->time, sizeof *own->time, true }, to->time,
                           err);
    return e ? e : bring_counts(engine, to, err);
}
