/* Patterns of messages on a crew of devices: by its clock, replayed, and as lists that smpi.c runs under SimGrid.
 *
 * Usage: patterns OUT.  Writes OUT/N.events of the Nth pattern from 0, and a line to stdout for each: name, cluster,
 * devices, the picoseconds in which the last device is done, by the clock and replayed, and how many of these SimGrid
 * does not know of.
 */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/device/contention.h"
#include "emulated_devices/schemes/pipeline/execute.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, N = 4 << 20 };        /* bytes of a vector */

typedef enum error_code pattern(struct comm *, struct group *, struct error *);

static char *room;                      /* 3 N bytes that the backend `count` neither reads nor writes */

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static enum error_code with(struct group *g, enum operation op, const char *name, int64_t count, struct error *err)
{
    struct collective call = { .in = room, .out = room + N, .count = count, .dtype = F32 };
    return collective_run(g, op, name, &call, err);
}

/* The first and the last device, ten times there and back. */
static enum error_code ping_pong(struct comm *c, struct group *g, struct error *err)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    const int last = g->size - 1, peer = last - c->rank;
    enum error_code e = OK;
    for (int i = 0; i < 20 && !e && (c->rank == 0 || c->rank == last); i++) {
        const bool sends = (i % 2 == 0) == (c->rank == 0);
        struct message m = sends ? message_send(&x, peer, room, N / 64) : message_receive(&x, peer, room, N / 64);
        e = message_wait(c, m, err);
    }
    return e;
}

static enum error_code ring(struct comm *c, struct group *g, struct error *err)
{
    (void)c;
    return with(g, ALLREDUCE, "ring", N / 4, err);
}

static enum error_code all_to_all(struct comm *c, struct group *g, struct error *err)
{
    (void)c;
    return with(g, ALLTOALL, "linear", N / 4 / g->size, err);
}

/* Every other device sends an eighth of N to device 0. */
static enum error_code incast(struct comm *c, struct group *g, struct error *err)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    struct message m[MOST];
    enum error_code e = OK;
    for (int i = 1; i < g->size; i++)
        if (c->rank == 0) m[i] = message_receive(&x, i, room, N / 8);
        else if (c->rank == i) m[i] = message_send(&x, 0, room, N / 8);
    for (int i = 1; i < g->size && !e; i++)
        if (c->rank == 0 || c->rank == i) e = message_wait(c, m[i], err);
    return e;
}

/* Two groups of 4 out of 8, each with two devices on each of two nodes of 4. */
static enum error_code halves(struct comm *c, pattern *run, struct error *err)
{
    const int first = c->rank % 4 / 2 * 2, ranks[4] = { first, first + 1, first + 4, first + 5 };
    struct group half;
    enum error_code e = group_of(&half, c, ranks, 4, TRAFFIC_DATA, 0, err);
    if (e) return e;
    e = run(c, &half, err);
    group_close(&half);
    return e;
}

static enum error_code two_rings(struct comm *c, struct group *g, struct error *err)
{
    (void)g;
    return halves(c, ring, err);
}

enum { MICROS = 8 };

static enum error_code stage_compute(void *context, enum action_kind kind, int chunk, int micro, struct error *err)
{
    const struct comm *c = context;
    (void)chunk, (void)micro, (void)err;
    device_charge(c->device, "pass", (struct op_cost){ .flops = kind == FORWARD ? 200e6 : 400e6 });
    return OK;
}

static struct tensor stage_tensor(void *context, int chunk, int micro)
{
    const struct comm *c = context;
    (void)chunk, (void)micro;
    return device_tensor_1d(c->device, BUFFERS, N / 64 / 4);
}

/* 1F1B. */
static enum error_code pipeline(struct comm *c, struct group *g, struct error *err)
{
    const struct stage_operations stage = { .compute = stage_compute, .input = stage_tensor,
                                            .output_gradient = stage_tensor, .take_output = stage_tensor,
                                            .take_input_gradient = stage_tensor };
    struct schedule s;
    enum error_code e = schedule_make(&s, "1f1b", &(struct schedule_request){ .devices = g->size, .micros = MICROS },
                                      err);
    if (e) return e;
    e = schedule_execute(&s, g, &stage, c, NULL, err);
    schedule_free(&s);
    return e;
}

static enum error_code two_pipelines(struct comm *c, struct group *g, struct error *err)
{
    (void)g;
    return halves(c, pipeline, err);
}

#define HERE "tests/simgrid/"
/* unknown: SimGrid has a gap once in the time of messages that wait for one port, in their latency; the port has it for
 * each of seven. */
enum { GAP = 2000000 };
static const struct row {
    const char *name, *cluster;
    int devices;
    pattern *run;
    picoseconds unknown;
    bool gapless;                       /* the cluster without its gaps */
} rows[] = {
    { "ping-pong", "textbook", 2, ping_pong, 0, false },
    { "ring", "textbook", 8, ring, 0, false },
    { "all-to-all", "textbook", 8, all_to_all, 0, false },
    { "incast", "textbook", 8, incast, 0, false },
    { "pipeline", "textbook", 4, pipeline, 0, false },
    { "ping-pong", HERE "waiting.json", 2, ping_pong, 0, false },
    { "ring", HERE "waiting.json", 8, ring, 0, false },
    { "all-to-all", HERE "waiting.json", 8, all_to_all, 0, false },
    { "incast", HERE "waiting.json", 8, incast, 0, false },
    { "pipeline", HERE "waiting.json", 4, pipeline, 0, false },
    { "ping-pong", HERE "gap.json", 2, ping_pong, 0, false },
    { "ring", HERE "gap.json", 8, ring, 0, false },
    { "all-to-all", HERE "gap.json", 8, all_to_all, 6 * GAP, false },
    { "incast", HERE "gap.json", 8, incast, 6 * GAP, false },
    { "ping-pong", HERE "uplink.json", 8, ping_pong, 0, false },
    { "ring", HERE "uplink.json", 8, ring, 0, false },
    { "all-to-all", HERE "uplink.json", 8, all_to_all, 0, false },
    { "incast", HERE "uplink.json", 8, incast, 0, false },
    { "two-rings", HERE "uplink.json", 8, two_rings, 0, false },
    { "two-pipelines", HERE "uplink.json", 8, two_pipelines, 0, false },
    { "all-to-all", "frontier", 16, all_to_all, 0, true },
    { "incast", "frontier", 16, incast, 0, true },
    { "all-to-all", "tpu-v4", 16, all_to_all, 0, true },
    { "incast", "tpu-v4", 16, incast, 0, true },
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- devices that record ----------------------------------------------------------------------------------------- */

struct job { const struct cluster *cluster; pattern *run; struct events *events; picoseconds end[MOST]; };

static enum error_code be_recorded(struct crew *crew, int rank, const void *asked, struct error *err)
{
    struct job *j = (struct job *)(uintptr_t)asked;
    struct device d;
    struct comm c;
    struct group g;
    enum error_code e = device_open(&d, backend_find("count"), F32, 0, err);
    if (e) return e;
    d.clock.events = &j->events[rank];
    clock_restart(&d.clock, j->cluster, F32);
    e = crew_join(&c, crew, rank, &d, err);
    if (!e) e = group_world(&g, &c, err);
    if (!e) {
        void *own = room = arena_alloc(&d.arena, BUFFERS, 3 * (uint64_t)N);
        e = j->run(&c, &g, err);
        j->end[rank] = d.clock.now;
        arena_free(&d.arena, own);
        group_close(&g), comm_close(&c);
    }
    device_close(&d);
    return e;
}

static picoseconds last(const picoseconds *end, int devices)
{
    picoseconds most = 0;
    for (int d = 0; d < devices; d++) most = end[d] > most ? end[d] : most;
    return most;
}

/* One line an event of the compute stream: work, send, sent, post, received. */
static void write_events(FILE *to, const struct event_list *list, int device)
{
    static const char letter[] = "wasdpr";                      /* in the order of enum event_kind; `after` has none */
    fprintf(to, "device %d %u\n", device, (unsigned)list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct event *v = &list->event[i];
        if (v->kind == EVENT_WORK) fprintf(to, "w 0 0 %" PRId64 "\n", v->takes);
        else fprintf(to, "%c %d %u %" PRIu64 "\n", letter[v->kind], v->peer, (unsigned)v->serial, v->bytes);
    }
}

static enum error_code write_lists(const char *folder, int number, const struct events *events, int devices,
                                   struct error *err)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%d.events", folder, number);
    FILE *to = fopen(path, "w");
    for (int d = 0; d < devices && to; d++) write_events(to, &events[d].of[COMPUTE], d);
    return to && fclose(to) == 0 ? OK : fail(err, ERR_FILE, "%s: cannot be written", path);
}

/* run.sh has written a shipped cluster without its gaps to the folder. */
static const char *cluster_of(const char *folder, const struct row *r, char *path, size_t room)
{
    if (!r->gapless) return r->cluster;
    snprintf(path, room, "%s/%s.json", folder, r->cluster);
    return path;
}

static enum error_code run_row(const char *folder, const struct row *r, int number, struct error *err)
{
    static struct events events[MOST];
    struct events *of[MOST];
    picoseconds end[MOST];
    char path[4096];
    struct cluster c;
    struct job j = { .cluster = &c, .run = r->run, .events = events };
    for (int d = 0; d < r->devices; d++) of[d] = &events[d];
    const char *const cluster = cluster_of(folder, r, path, sizeof path);
    enum error_code e = cluster_find(&c, cluster, err);
    if (e) return e;
    c.flop_rate[F32] = 1000000, c.memory_rate = 0, c.kernels = (struct kernels){ 0 };   /* an operation: a picosecond */
    e = crew_run(r->devices, be_recorded, &j, err);
    if (!e) e = write_lists(folder, number, events, r->devices, err);
    if (!e) e = contention_replay(&c, of, r->devices, end, err);
    if (!e)
        printf("%s %s %d %" PRId64 " %" PRId64 " %" PRId64 "\n", r->name, cluster, r->devices,
               last(j.end, r->devices), last(end, r->devices), r->unknown);
    for (int d = 0; d < r->devices; d++) events_free(&events[d]);
    return e;
}

int main(int argc, char **argv)
{
    struct error err = { 0 };
    if (argc != 2) return fprintf(stderr, "usage: patterns OUT\n"), 2;
    for (int i = 0; i < ROWS; i++)
        if (run_row(argv[1], &rows[i], i, &err) != OK) return fprintf(stderr, "patterns: %s\n", err.text), 1;
    return 0;
}
