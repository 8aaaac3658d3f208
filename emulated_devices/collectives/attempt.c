/* attempt.c -- the time of a collective by running it: on a crew of devices without numbers (comm/crew.h).
 *
 * The members' ranks are 0 .. P-1 here; their places on the cluster are those of the group.  Arrangements that a call
 * makes are not part of it: buffers are separate, and a broadcast's first copy is left out, which all algorithms share.
 * An allreduce's is part of it: some algorithms begin from `in`.
 *
 * auto.c, segments.c and cli/show/cluster_pairs.c call this file.  An error of the attempt is no error of the call:
 * attempt_time returns a negative time.
 */
#include "emulated_devices/collectives/attempt.h"
#include "emulated_devices/collectives/algorithm.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/device/contention.h"
#include <stdlib.h>

struct attempt {
    const struct algorithm *algorithm;
    const struct collective *call;
    const struct cluster *cluster;
    int P;
    picoseconds *end;                   /* [P] */
    struct events *events;              /* [P] of the devices, or NULL */
    bool in_place;                      /* an allreduce has its vector in `out` already */
};

bool attempt_is_cheap(const struct algorithm *algorithm, int P, const struct collective *collective)
{
    uint64_t messages = 0;
    if (P > ATTEMPT_MOST_DEVICES) return false;
    for (int r = 0; r < P; r++) messages += collective_cost(algorithm, r, P, collective).messages;
    return messages <= ATTEMPT_MOST_MESSAGES;
}

/* A device of the attempt allocates both buffers, and runs the algorithm as collective_run would. */
static enum error_code run_here(struct comm *comm, const struct attempt *attempt, struct error *err)
{
    struct group g;
    struct collective call = *attempt->call;
    struct arena *arena = &comm->device->arena;
    int64_t in, out;
    enum error_code e = group_world(&g, comm, err);
    if (e) return e;
    collective_extents(attempt->algorithm->operation, &call, comm->rank, attempt->P, &in, &out);
    void *const buffer[] = { arena_alloc(arena, BUFFERS, bytes_of(&call, in) + 1),
                             arena_alloc(arena, BUFFERS, bytes_of(&call, out) + 1) };
    call.in = buffer[0], call.out = buffer[1];
    if (attempt->in_place) call.in = call.out;
    else if (buffer[0] && buffer[1] && attempt->algorithm->operation == ALLREDUCE && !attempt->algorithm->reads_in) {
        struct exchange here = { .group = &g, .operation = ALLREDUCE };
        copy_elements(&here, &call, call.out, call.in, call.count);
        call.in = call.out;
    }
    e = buffer[0] && buffer[1] ? attempt->algorithm->run(&g, &call, err)
        : fail(err, ERR_MEMORY, "no memory for an attempt");
    arena_free(arena, buffer[0]);
    arena_free(arena, buffer[1]);
    group_close(&g);
    return e;
}

/* The crew calls this once for each device, whose memory is of the backend that only counts. */
static enum error_code be_tried(struct crew *crew, int rank, const void *asked, struct error *err)
{
    struct attempt *t = (struct attempt *)(uintptr_t)asked;         /* each device writes its own end */
    struct device d;
    struct comm c;
    enum error_code e = device_open(&d, backend_find("count"), t->call->dtype, 0, err);
    if (e) return e;
    /* The device stands where the group's member stands, so its links are those of the call. */
    d.clock.places = t->call->nodes.member;
    d.clock.events = t->events ? &t->events[rank] : NULL;
    clock_restart(&d.clock, t->cluster, t->call->dtype);
    e = crew_join(&c, crew, rank, &d, err);
    if (!e) {
        e = run_here(&c, t, err);
        t->end[rank] = d.clock.now;
        comm_close(&c);
    }
    device_close(&d);
    return e;
}

static picoseconds attempt_last(const picoseconds *end, int P)
{
    picoseconds last = 0;
    for (int r = 0; r < P; r++) last = end[r] > last ? end[r] : last;
    return last;
}

picoseconds attempt_time(const struct algorithm *algorithm, int P, const struct collective *collective,
                         const struct cluster *cluster)
{
    picoseconds end[ATTEMPT_MOST_DEVICES];
    struct attempt t = { .algorithm = algorithm, .call = collective, .cluster = cluster, .P = P, .end = end };
    struct error err;
    if (P > ATTEMPT_MOST_DEVICES || crew_run(P, be_tried, &t, &err)) return -1;
    return attempt_last(end, P);
}

enum error_code attempt_times(const struct algorithm *algorithm, int P, const struct collective *collective,
                              const struct cluster *cluster, picoseconds *clock, picoseconds *replayed,
                              struct error *err)
{
    struct attempt t = { .algorithm = algorithm, .call = collective, .cluster = cluster, .P = P,
                         .in_place = algorithm->operation == ALLREDUCE,
                         .end = calloc((size_t)P, sizeof *t.end), .events = calloc((size_t)P, sizeof *t.events) };
    struct events **of = calloc((size_t)P, sizeof *of);
    enum error_code e = t.end && t.events && of ? crew_run(P, be_tried, &t, err)
                                                : fail(err, ERR_MEMORY, "no memory for a call of %d devices", P);
    if (!e) *clock = attempt_last(t.end, P);
    for (int r = 0; r < P && !e; r++) of[r] = &t.events[r];
    if (!e) e = contention_replay(cluster, of, P, t.end, err);
    if (!e) *replayed = attempt_last(t.end, P);
    for (int r = 0; r < P && t.events; r++) events_free(&t.events[r]);
    free(t.end), free(t.events), free(of);
    return e;
}
