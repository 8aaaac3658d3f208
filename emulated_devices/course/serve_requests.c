/* serve_requests.c -- what a worker can ask its device for.  All of it is checked here: the worker's own checks are in
 * the student's process. */
#include "emulated_devices/course/alike.h"
#include "emulated_devices/course/desk.h"
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/compute.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_MEGABYTES = 192 };

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Bytes that all devices of the run hold here for their workers: messages on their way, blocks, operands. */
static uint64_t held;

static void hold(struct desk *k, uint64_t bytes)
{
    held += bytes;
    if (held > (uint64_t)RUN_MEGABYTES << 20)
        desk_end(k, RUN_BROKEN, "there is no memory for %llu bytes: all devices of a run have %d MiB for messages "
                  "that nobody has received, and for allocate()", (unsigned long long)bytes, RUN_MEGABYTES);
}

static void *memory(struct desk *k, uint64_t bytes)
{
    hold(k, bytes);
    void *p = bytes <= WORKER_POOL ? calloc(1, bytes + 1) : NULL;
    if (p == NULL) desk_end(k, RUN_BROKEN, "there is no memory for %llu bytes", (unsigned long long)bytes);
    return p;
}

static void give_memory(void *p, uint64_t bytes)
{
    free(p);
    held -= bytes;
}

/* ---- what happened ----------------------------------------------------------------------------------------------- */

static void note(struct desk *k, enum event_kind kind, int peer, uint64_t bytes, picoseconds from)
{
    struct trial *r = k->run;
    if (r->events == RUN_EVENTS) return;
    r->event[r->events++] = (struct event){ (int32_t)kind, k->rank, peer, bytes, from, k->device->clock.now };
}

static void doing(struct desk *k, enum waiting what, int peer, uint64_t bytes)
{
    k->own->doing = (int32_t)what, k->own->peer = peer, k->own->waits_bytes = bytes;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static struct group *group_asked(struct desk *k, const struct request *q, bool with_peer)
{
    if (q->group < 0 || q->group >= k->groups || !k->in[q->group]) desk_forged(k);
    struct group *g = &k->group[q->group];
    if (with_peer && (q->peer < 0 || q->peer >= g->size || q->peer == g->rank)) desk_forged(k);
    return g;
}

static void start_message(struct desk *k, const struct request *q)
{
    struct group *g = group_asked(k, q, true);
    struct exchange *x = &k->exchange[q->group];
    const bool sending = q->kind == ASK_SEND;
    if (q->number < 0 || q->number >= WORKER_MESSAGES || k->mail[q->number].used || (sending && q->payload != q->bytes))
        desk_forged(k);
    void *data = memory(k, q->bytes);
    if (sending) desk_hear(k, data, q->bytes);
    k->mail[q->number].used = true, k->mail[q->number].sending = sending, k->mail[q->number].data = data;
    k->mail[q->number].bytes = q->bytes, k->mail[q->number].peer = g->member[q->peer];
    k->mail[q->number].both = q->a != 0;
    if (sending) note(k, EVENT_SEND, g->member[q->peer], q->bytes, k->device->clock.now);
    k->mail[q->number].message = sending ? message_send(x, q->peer, data, q->bytes)
                                         : message_receive(x, q->peer, data, q->bytes);
}

/* "send over all devices: device 1 expected 8 bytes from device 0, which sent 4", as the student's call. */
static void wrong_message(struct desk *k, const struct request *q, const struct error *err)
{
    const char *size = strstr(err->text, "expected ");
    if (size == NULL) desk_end(k, RUN_MISUSED, "%s", err->text);
    desk_end(k, RUN_MISUSED, "%s %s bytes", k->mail[q->number].both ? "exchange_both" : "message_receive", size);
}

static void wait_message(struct desk *k, const struct request *q)
{
    struct error err = { OK, "" };
    if (q->number < 0 || q->number >= WORKER_MESSAGES || !k->mail[q->number].used) desk_forged(k);
    const bool sending = k->mail[q->number].sending;
    const uint64_t bytes = k->mail[q->number].bytes;
    const int peer = k->mail[q->number].peer;
    const picoseconds from = k->device->clock.now;
    doing(k, sending ? WAITS_TO_SEND : WAITS_TO_RECEIVE, peer, bytes);
    if (message_wait(k->comm, k->mail[q->number].message, &err) != OK) wrong_message(k, q, &err);
    doing(k, NOT_WAITING, 0, 0);
    if (!sending) note(k, EVENT_RECEIVE, peer, bytes, from);
    desk_answer(k, 0, k->mail[q->number].data, sending ? 0 : bytes);
    give_memory(k->mail[q->number].data, bytes);
    k->mail[q->number].used = false;
}

static void take_block(struct desk *k, const struct request *q)
{
    if (q->number < 0 || q->number >= WORKER_MESSAGES || k->block[q->number] || q->bytes > WORKER_POOL) desk_forged(k);
    hold(k, q->bytes);
    k->block[q->number] = arena_alloc(&k->device->arena, ACTIVATIONS, q->bytes), k->block_bytes[q->number] = q->bytes;
    if (k->block[q->number] == NULL) desk_end(k, RUN_BROKEN, "there is no memory for the devices");
}

static void give_block(struct desk *k, const struct request *q)
{
    if (q->number < 0 || q->number >= WORKER_MESSAGES || k->block[q->number] == NULL) desk_forged(k);
    arena_free(&k->device->arena, k->block[q->number]), held -= k->block_bytes[q->number];
    k->block[q->number] = NULL;
}

/* The worker has added; here is what it takes. */
static void add(struct desk *k, const struct request *q)
{
    if (q->a < 0 || q->a > WORKER_POOL / 4) desk_forged(k);
    const picoseconds from = k->device->clock.now;
    void *zeros = memory(k, 4 * (uint64_t)q->a), *more = memory(k, 4 * (uint64_t)q->a);
    reduce_local(&k->exchange[0], SUM, F32, zeros, more, q->a);
    k->own->additions += (uint64_t)q->a;
    give_memory(zeros, 4 * (uint64_t)q->a), give_memory(more, 4 * (uint64_t)q->a);
    note(k, EVENT_COMPUTE, 0, 4 * (uint64_t)q->a, from);
}

static void compute(struct desk *k, const struct request *q)
{
    const picoseconds from = k->device->clock.now;
    for (int i = 0; i < 2; i++)
        if (!(q->real[i] >= 0 && q->real[i] < 1e15)) desk_end(k, RUN_MISUSED, "work: %g is no number of operations or "
                                                             "bytes", q->real[i]);
    device_charge(k->device, "work", (struct op_cost){ .flops = q->real[0], .bytes = q->real[1] });
    note(k, EVENT_COMPUTE, 0, 0, from);
}

static void make_group(struct desk *k, const struct request *q)
{
    int32_t list[WORKER_MOST_DEVICES];
    int ranks[WORKER_MOST_DEVICES], size = (int)(q->payload / sizeof *list);
    struct error err = { OK, "" };
    if (q->payload > sizeof list || size < 1) desk_forged(k);
    if (k->groups == GROUPS) desk_end(k, RUN_MISUSED, "group_of: more than %d groups", GROUPS);
    desk_hear(k, list, q->payload);
    for (int i = 0; i < size; i++) {
        ranks[i] = list[i];
        if (ranks[i] < 0 || ranks[i] >= k->run->devices)
            desk_end(k, RUN_MISUSED, "group_of: there is no device %d among %d", ranks[i], k->run->devices);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i]) desk_end(k, RUN_MISUSED, "group_of: device %d is in it twice", ranks[i]);
    }
    const int i = k->groups;
    desk_must(k, group_of(&k->group[i], k->comm, ranks, size, TRAFFIC_OTHER, 0, &err), &err);
    k->exchange[i] = exchange_begin(&k->group[i], POINT_TO_POINT);
    k->in[i] = true, k->groups++;
    desk_answer(k, i, NULL, 0);
}

static const enum operation operations[] = { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, ALLTOALL };

/* Once all members have said what they ask for, member 0 compares, and lets the others go on. */
static void meet(struct desk *k, struct group *g)
{
    struct exchange x = exchange_begin(g, CONTROL);
    struct error err = { OK, "" };
    char why[RUN_TEXT], go = 0;
    for (int m = 1; m < g->size && g->rank == 0; m++)
        desk_must(k, exchange_both(&x, -1, NULL, 0, m, &go, 1, &err), &err);
    if (g->rank == 0 && !collectives_alike(k->run, g->member, g->size, why, sizeof why)) desk_end_together(k, why);
    for (int m = 1; m < g->size && g->rank == 0; m++)
        desk_must(k, exchange_both(&x, m, &go, 1, -1, NULL, 0, &err), &err);
    if (g->rank == 0) return;
    desk_must(k, exchange_both(&x, 0, &go, 1, -1, NULL, 0, &err), &err);
    desk_must(k, exchange_both(&x, -1, NULL, 0, 0, &go, 1, &err), &err);
}

static void remember(struct desk *k, const struct request *q, const int64_t *counts, int size)
{
    struct asked_collective *a = &k->own->asked;
    *a = (struct asked_collective){ .kind = q->number, .root = q->peer, .count = q->a };
    for (int m = 0; m < size && counts; m++) a->give[m] = counts[m], a->take[m] = counts[size + m];
}

static void do_collective(struct desk *k, const struct request *q)
{
    struct group *g = group_asked(k, q, false);
    struct error err = { OK, "" };
    struct collective c = { .count = q->a, .dtype = F32, .reduction = SUM, .root = q->peer };
    int64_t ins, outs;
    if (q->number < 0 || q->number > DO_ALL_TO_ALL || q->peer < 0 || q->peer >= g->size || q->a < 0 ||
        q->a > WORKER_POOL / 4) desk_forged(k);
    const enum operation op = operations[q->number];
    const uint64_t head = op == ALLTOALL ? 16 * (uint64_t)g->size : 0;
    if (q->payload < head || q->payload > WORKER_POOL) desk_forged(k);
    int64_t *counts = memory(k, head);
    desk_hear(k, counts, head);
    if (head > 0) c.counts = counts, c.recvcounts = counts + g->size;
    for (int i = 0; head > 0 && i < 2 * g->size; i++) if (counts[i] < 0 || counts[i] > WORKER_POOL / 4) desk_forged(k);
    collective_extents(op, &c, g->rank, g->size, &ins, &outs);
    if (op == BROADCAST && g->rank != q->peer) ins = 0;
    if (q->payload != head + 4 * (uint64_t)ins) desk_forged(k);
    void *in = memory(k, q->payload - head), *out = memory(k, 4 * (uint64_t)outs);
    desk_hear(k, in, q->payload - head);
    c.in = in, c.out = out;
    if (op == BROADCAST || op == ALLREDUCE) memcpy(out, in, (size_t)(q->payload - head)), c.in = out;
    const picoseconds from = k->device->clock.now;
    remember(k, q, c.counts, g->size);
    doing(k, WAITS_IN_COLLECTIVE, q->number, 4 * (uint64_t)q->a);
    meet(k, g);
    desk_must(k, collective_run(g, op, NULL, &c, &err), &err);
    doing(k, NOT_WAITING, 0, 0);
    k->own->collectives++;
    note(k, EVENT_COLLECTIVE, q->number, 4 * (uint64_t)q->a, from);
    desk_answer(k, 0, out, 4 * (uint64_t)outs);
    give_memory(in, q->payload - head), give_memory(out, 4 * (uint64_t)outs), give_memory(counts, head);
}

static void use_stream(struct desk *k, const struct request *q)
{
    struct clock *c = &k->device->clock;
    if (q->number == 2 && k->apart) desk_end(k, RUN_MISUSED, "stream_join before stream_end");
    k->unjoined = q->number != 2;
    if (q->number == 2) clock_join(c, COMMUNICATION);
    else if (q->number == (k->apart ? 1 : 0)) {
        k->apart = q->number == 0;
        if (k->apart) clock_begin(c, COMMUNICATION);
        else clock_end(c);
    } else desk_end(k, RUN_MISUSED, k->apart ? "stream_begin after stream_begin" : "stream_end without stream_begin");
}

static void take_line(struct desk *k, const struct request *q)
{
    char text[201] = "";
    if (q->payload > 200) desk_forged(k);
    desk_hear(k, text, q->payload);
    const size_t used = strlen(k->run->lines);
    if (used < sizeof k->run->lines - 1)
        snprintf(k->run->lines + used, sizeof k->run->lines - used, "device %d says: %s\n", k->rank, text);
}

static void take_misuse(struct desk *k, const struct request *q)
{
    char text[301] = "";
    if (q->payload > 300) desk_forged(k);
    desk_hear(k, text, q->payload);
    desk_end(k, RUN_MISUSED, "%s", text);
}

static void take_results(struct desk *k, const struct request *q)
{
    uint64_t sum = 0;
    if (k->apart) desk_end(k, RUN_MISUSED, "the function returned after stream_begin: stream_end() is missing");
    if (k->unjoined)
        desk_end(k, RUN_MISUSED, "the function returned while a stream was still working: stream_join() is missing");
    for (int i = 0; i < WORKER_BUFFERS; i++) sum += k->own->buffer[i].way & BUFFER_OUT ? k->own->buffer[i].bytes : 0;
    if (q->payload != sum) desk_forged(k);
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (k->own->buffer[i].way & BUFFER_OUT) desk_hear(k, k->own->buffer[i].data, k->own->buffer[i].bytes);
    k->own->result = q->a, k->own->real = q->real[0];
}

void desk_serve(struct desk *k)
{
    for (struct request q;;) {
        desk_hear(k, &q, sizeof q);
        switch ((enum request_kind)q.kind) {
        case ASK_SEND: case ASK_RECEIVE: start_message(k, &q); break;
        case ASK_WAIT: wait_message(k, &q); break;
        case ASK_ALLOCATE: take_block(k, &q); break;
        case ASK_RELEASE: give_block(k, &q); break;
        case ASK_ADD: add(k, &q); break;
        case ASK_WORK: compute(k, &q); break;
        case ASK_TIME: desk_answer(k, k->device->clock.now, NULL, 0); break;
        case ASK_GROUP: make_group(k, &q); break;
        case ASK_COLLECTIVE: do_collective(k, &q); break;
        case ASK_STREAM: use_stream(k, &q); break;
        case ASK_SAY: take_line(k, &q); break;
        case ASK_MISUSE: take_misuse(k, &q); break;
        case ASK_DONE: take_results(k, &q); return;
        default: desk_forged(k);
        }
    }
}
