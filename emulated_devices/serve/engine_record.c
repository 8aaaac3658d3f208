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

/* The place where rank 0 collects entries, and the lists of all devices one after another. */
struct taken { void *to; const char *all; size_t each, own; };

static void take_entries(const struct taken *taken, int device, int64_t from, int64_t to)
{
    const size_t at = (size_t)from * taken->each;
    memcpy((char *)taken->to + at, taken->all + (size_t)device * taken->own + at, (size_t)(to - from) * taken->each);
}

int device_that_draws(const struct plan *plan, int64_t replica)
{
    return mesh_neighbour(&plan->mesh, mesh_neighbour(&plan->mesh, 0, DP, (int)replica), PP, plan->mesh.size[PP] - 1);
}

/* Bring a list of every device to rank 0, and take each request's part.  by_token: a token has an entry of it. */
static enum error_code bring_list(struct engine *engine, void *own, size_t each, bool by_token, void *to,
                                  struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    const struct plan *const p = engine_plan(engine);
    const int64_t n = engine->record.requests, *const first = engine->record.first;
    const size_t bytes = each * (size_t)(by_token ? first[n] : n);
    char *const all = comm->rank == 0 ? malloc(bytes * (size_t)comm->size + 1) : NULL;
    enum error_code e = comm->rank == 0 && all == NULL ? fail(err, ERR_MEMORY, "no memory for the answers of all "
                                                              "devices") : OK;
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, own, bytes, all, err);
    const struct taken taken = { to, all, each, bytes };
    for (int64_t i = 0; i < n && !e && comm->rank == 0; i++)
        take_entries(&taken, device_that_draws(p, replica_of_answer(engine->job, p->mesh.size[DP], i)),
                     by_token ? first[i] : i,
                     by_token ? first[i + 1] : i + 1);
    free(all);
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

enum error_code bring_counts(struct engine *engine, struct serving_record *to, struct error *err)
{
    struct comm *const comm = engine->trainer->comm;
    const struct plan *const p = engine_plan(engine);
    const struct replica_counts own = { .counts = engine->scheduler.counts, .end = engine->now,
                                        .proposals = engine->drawing.proposer.counts,
                                        .free_blocks = engine->scheduler.pool.free,
                                        .cache_bytes = pages_bytes(&engine->pages),
                                        .free_host = engine->scheduler.host.free,
                                        .host = engine->pages.tier.traffic };
    struct replica_counts *const all = calloc((size_t)comm->size, sizeof *all);
    to->replicas = p->mesh.size[DP];
    to->replica = calloc((size_t)to->replicas, sizeof *to->replica);
    enum error_code e = comm_agree(comm, check_messages(comm, err), err);
    if (!e) e = comm_agree(comm, check_swaps(engine, err), err);
    if (!e && !(all && to->replica)) e = fail(err, ERR_MEMORY, "no memory for the counts of all devices");
    e = comm_agree(comm, e, err);
    if (!e) e = comm_bring(comm, &own, sizeof own, all, err);
    for (int64_t r = 0; r < to->replicas && !e && comm->rank == 0; r++) to->replica[r] = all[device_that_draws(p, r)];
    free(all);
    return e;
}

enum error_code bring_record(struct engine *engine, struct serving_record *to, struct error *err)
{
    struct serving_record *const own = &engine->record;
    struct comm *const comm = engine->trainer->comm;
    enum error_code e = comm_agree(comm, record_open(to, engine->job->requests, err), err);
    if (!e) e = bring_list(engine, own->answer, sizeof *own->answer, false, to->answer, err);
    if (!e) e = bring_list(engine, own->token, sizeof *own->token, true, to->token, err);
    if (!e) e = bring_list(engine, own->time, sizeof *own->time, true, to->time, err);
    return e ? e : bring_counts(engine, to, err);
}
