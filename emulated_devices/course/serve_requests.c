/* serve_requests.c -- what a worker can ask its device for.  All of it is checked here: the worker's own checks are in
 * the student's process.
 * serve.c calls desk_serve for each device, until its worker says that the function has returned.  An impossible
 * request ends the run. */
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

/* All devices together have a limit, so a lesson cannot take a machine's memory. */
static void serve_requests_hold(struct desk *desk, uint64_t bytes)
{
    held += bytes;
    if (held > (uint64_t)RUN_MEGABYTES << 20)
        desk_end(desk, RUN_BROKEN, "there is no memory for %llu bytes: all devices of a run have %d MiB for messages "
                  "that nobody has received, and for allocate()", (unsigned long long)bytes, RUN_MEGABYTES);
}

/* This takes memory for a worker; without it the run ends. */
static void *memory(struct desk *desk, uint64_t bytes)
{
    serve_requests_hold(desk, bytes);
    void *p = bytes <= WORKER_POOL ? calloc(1, bytes + 1) : NULL;
    if (p == NULL) desk_end(desk, RUN_BROKEN, "there is no memory for %llu bytes", (unsigned long long)bytes);
    return p;
}

/* Free a worker's memory, and count it back. */
static void give_memory(void *p, uint64_t bytes)
{
    free(p);
    held -= bytes;
}

/* ---- what happened ----------------------------------------------------------------------------------------------- */

/* Note an event for the drawing, if there is room. */
static void serve_requests_note(struct desk *desk, enum event_kind kind, int peer, uint64_t bytes, picoseconds from)
{
    struct trial *r = desk->run;
    if (r->events == RUN_EVENTS) return;
    r->event[r->events++] = (struct event){ (int32_t)kind, desk->rank, peer, bytes, from, desk->device->clock.now };
}

/* A device notes what it does now, which a deadlock tells. */
static void doing(struct desk *desk, enum waiting what, int peer, uint64_t bytes)
{
    desk->own->doing = (int32_t)what, desk->own->peer = peer, desk->own->waits_bytes = bytes;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* This finds the group of a request, and checks its peer; both must be this device's. */
static struct group *group_asked(struct desk *desk, const struct request *request, bool with_peer)
{
    if (request->group < 0 || request->group >= desk->groups || !desk->in[request->group]) desk_forged(desk);
    struct group *g = &desk->group[request->group];
    if (with_peer && (request->peer < 0 || request->peer >= g->size || request->peer == g->rank)) desk_forged(desk);
    return g;
}

/* Begin a message: a send takes the bytes from the worker, a receive gets room for them. */
static void start_message(struct desk *desk, const struct request *request)
{
    struct group *g = group_asked(desk, request, true);
    struct exchange *x = &desk->exchange[request->group];
    const bool sending = request->kind == ASK_SEND;
    if (request->number < 0 || request->number >= WORKER_MESSAGES || desk->mail[request->number].used
        || (sending && request->payload != request->bytes)) desk_forged(desk);
    /* A receive gets its room before the message is there. */
    void *data = memory(desk, request->bytes);
    if (sending) desk_hear(desk, data, request->bytes);
    desk->mail[request->number].used = true, desk->mail[request->number].sending = sending,
        desk->mail[request->number].data = data;
    desk->mail[request->number].bytes = request->bytes, desk->mail[request->number].peer = g->member[request->peer];
    desk->mail[request->number].both = request->a != 0;
    if (sending) serve_requests_note(desk, EVENT_SEND, g->member[request->peer], request->bytes,
                                     desk->device->clock.now);
    desk->mail[request->number].message = sending ? message_send(x, request->peer, data, request->bytes)
                                         : message_receive(x, request->peer, data, request->bytes);
}

/* Say that a message has another size: "device 1 expected 8 bytes from device 0, which sent 4". */
static void wrong_message(struct desk *desk, const struct request *request, const struct error *err)
{
    const char *size = strstr(err->text, "expected ");
    if (size == NULL) desk_end(desk, RUN_MISUSED, "%s", err->text);
    desk_end(desk, RUN_MISUSED, "%s %s bytes", desk->mail[request->number].both ? "exchange_both"
             : "message_receive", size);
}

/* Wait for a message, and give what has come to the worker. */
static void wait_message(struct desk *desk, const struct request *request)
{
    struct error err = { OK, "" };
    if (request->number < 0 || request->number >= WORKER_MESSAGES || !desk->mail[request->number].used)
        desk_forged(desk);
    const bool sending = desk->mail[request->number].sending;
    const uint64_t bytes = desk->mail[request->number].bytes;
    const int peer = desk->mail[request->number].peer;
    const picoseconds from = desk->device->clock.now;
    doing(desk, sending ? WAITS_TO_SEND : WAITS_TO_RECEIVE, peer, bytes);
    if (message_wait(desk->comm, desk->mail[request->number].message, &err) != OK) wrong_message(desk, request, &err);
    doing(desk, NOT_WAITING, 0, 0);
    if (!sending) serve_requests_note(desk, EVENT_RECEIVE, peer, bytes, from);
    desk_answer(desk, 0, desk->mail[request->number].data, sending ? 0 : bytes);
    give_memory(desk->mail[request->number].data, bytes);
    desk->mail[request->number].used = false;
}

/* A block of allocate(): it is counted in the device's arena. */
static void take_block(struct desk *desk, const struct request *request)
{
    if (request->number < 0 || request->number >= WORKER_MESSAGES || desk->block[request->number]
        || request->bytes > WORKER_POOL) desk_forged(desk);
    serve_requests_hold(desk, request->bytes);
    desk->block[request->number] = arena_alloc(&desk->device->arena, ACTIVATIONS, request->bytes),
        desk->block_bytes[request->number] = request->bytes;
    if (desk->block[request->number] == NULL) desk_end(desk, RUN_BROKEN, "there is no memory for the devices");
}

/* release() of a block that the device has. */
static void give_block(struct desk *desk, const struct request *request)
{
    if (request->number < 0 || request->number >= WORKER_MESSAGES || desk->block[request->number] == NULL)
        desk_forged(desk);
    arena_free(&desk->device->arena, desk->block[request->number]), held -= desk->block_bytes[request->number];
    desk->block[request->number] = NULL;
}

/* Charge an addition that the worker has made: here is what it takes. */
static void serve_requests_add(struct desk *desk, const struct request *request)
{
    if (request->a < 0 || request->a > WORKER_POOL / 4) desk_forged(desk);
    const picoseconds from = desk->device->clock.now;
    /* Two arrays of zeros stand for the worker's own, so that the clock is charged as for them. */
    void *zeros = memory(desk, 4 * (uint64_t)request->a), *more = memory(desk, 4 * (uint64_t)request->a);
    reduce_local(&desk->exchange[0], SUM, F32, zeros, more, request->a);
    desk->own->additions += (uint64_t)request->a;
    give_memory(zeros, 4 * (uint64_t)request->a), give_memory(more, 4 * (uint64_t)request->a);
    serve_requests_note(desk, EVENT_COMPUTE, 0, 4 * (uint64_t)request->a, from);
}

/* Charge work() of a device. */
static void serve_requests_compute(struct desk *desk, const struct request *request)
{
    const picoseconds from = desk->device->clock.now;
    for (int i = 0; i < 2; i++)
        if (!(request->real[i] >= 0 && request->real[i] < 1e15))
            desk_end(desk, RUN_MISUSED, "work: %g is no number of operations or "
                                                             "bytes", request->real[i]);
    device_charge(desk->device, "work", (struct op_cost){ .flops = request->real[0], .bytes = request->real[1] });
    serve_requests_note(desk, EVENT_COMPUTE, 0, 0, from);
}

/* Make a group of devices, which all of its members must ask for. */
static void make_group(struct desk *desk, const struct request *request)
{
    int32_t list[WORKER_MOST_DEVICES];
    int ranks[WORKER_MOST_DEVICES], size = (int)(request->payload / sizeof *list);
    struct error err = { OK, "" };
    if (request->payload > sizeof list || size < 1) desk_forged(desk);
    if (desk->groups == GROUPS) desk_end(desk, RUN_MISUSED, "group_of: more than %d groups", GROUPS);
    desk_hear(desk, list, request->payload);
    for (int i = 0; i < size; i++) {
        ranks[i] = list[i];
        if (ranks[i] < 0 || ranks[i] >= desk->run->devices)
            desk_end(desk, RUN_MISUSED, "group_of: there is no device %d among %d", ranks[i], desk->run->devices);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i]) desk_end(desk, RUN_MISUSED, "group_of: device %d is in it twice", ranks[i]);
    }
    const int i = desk->groups;
    desk_must(desk, group_of(&desk->group[i], desk->comm, ranks, size, TRAFFIC_OTHER, 0, &err), &err);
    desk->exchange[i] = exchange_begin(&desk->group[i], POINT_TO_POINT);
    desk->in[i] = true, desk->groups++;
    desk_answer(desk, i, NULL, 0);
}

/* These are the operations of course.h, in the order of their numbers. */
static const enum operation operations[] = { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, ALLTOALL };

/* Let all members say what they ask for before anybody goes on.  Member 0 compares, and lets the others go on. */
static void serve_requests_meet(struct desk *desk, struct group *group)
{
    struct exchange x = exchange_begin(group, CONTROL);
    struct error err = { OK, "" };
    char why[RUN_TEXT], go = 0;
    for (int m = 1; m < group->size && group->rank == 0; m++)
        desk_must(desk, exchange_both(&x, -1, NULL, 0, m, &go, 1, &err), &err);
    if (group->rank == 0 && !collectives_alike(desk->run, group->member, group->size, why, sizeof why))
        desk_end_together(desk, why);
    for (int m = 1; m < group->size && group->rank == 0; m++)
        desk_must(desk, exchange_both(&x, m, &go, 1, -1, NULL, 0, &err), &err);
    if (group->rank == 0) return;
    desk_must(desk, exchange_both(&x, 0, &go, 1, -1, NULL, 0, &err), &err);
    desk_must(desk, exchange_both(&x, -1, NULL, 0, 0, &go, 1, &err), &err);
}

/* Keep the call of a device, so that a deadlock or a mistake can name it. */
static void serve_requests_remember(struct desk *desk, const struct request *request, const int64_t *counts, int size)
{
    struct asked_collective *a = &desk->own->asked;
    *a = (struct asked_collective){ .kind = request->number, .root = request->peer, .count = request->a };
    for (int m = 0; m < size && counts; m++) a->give[m] = counts[m], a->take[m] = counts[size + m];
}

/* Run a collective operation of all members of a group. */
static void do_collective(struct desk *desk, const struct request *request)
{
    struct group *g = group_asked(desk, request, false);
    struct error err = { OK, "" };
    struct collective c = { .count = request->a, .dtype = F32, .reduction = SUM, .root = request->peer };
    int64_t ins, outs;
    if (request->number < 0 || request->number > DO_ALL_TO_ALL || request->peer < 0 || request->peer >= g->size
        || request->a < 0 || request->a > WORKER_POOL / 4) desk_forged(desk);
    const enum operation op = operations[request->number];
    const uint64_t head = op == ALLTOALL ? 16 * (uint64_t)g->size : 0;
    if (request->payload < head || request->payload > WORKER_POOL) desk_forged(desk);
    int64_t *counts = memory(desk, head);
    desk_hear(desk, counts, head);
    if (head > 0) c.counts = counts, c.recvcounts = counts + g->size;
    for (int i = 0; head > 0 && i < 2 * g->size; i++)
        if (counts[i] < 0 || counts[i] > WORKER_POOL / 4) desk_forged(desk);
    /* An all_to_all has its counts in front of the bytes. */
    collective_extents(op, &c, g->rank, g->size, &ins, &outs);
    if (op == BROADCAST && g->rank != request->peer) ins = 0;
    if (request->payload != head + 4 * (uint64_t)ins) desk_forged(desk);
    void *in = memory(desk, request->payload - head), *out = memory(desk, 4 * (uint64_t)outs);
    desk_hear(desk, in, request->payload - head);
    c.in = in, c.out = out;
    /* A broadcast and an all-reduce work in place. */
    if (op == BROADCAST || op == ALLREDUCE) memcpy(out, in, (size_t)(request->payload - head)), c.in = out;
    const picoseconds from = desk->device->clock.now;
    serve_requests_remember(desk, request, c.counts, g->size);
    doing(desk, WAITS_IN_COLLECTIVE, request->number, 4 * (uint64_t)request->a);
    serve_requests_meet(desk, g);
    desk_must(desk, collective_run(g, op, NULL, &c, &err), &err);
    doing(desk, NOT_WAITING, 0, 0);
    desk->own->collectives++;
    serve_requests_note(desk, EVENT_COLLECTIVE, request->number, 4 * (uint64_t)request->a, from);
    desk_answer(desk, 0, out, 4 * (uint64_t)outs);
    give_memory(in, request->payload - head), give_memory(out, 4 * (uint64_t)outs), give_memory(counts, head);
}

/* Begin, end or join a stream of the device's clock. */
static void use_stream(struct desk *desk, const struct request *request)
{
    struct clock *c = &desk->device->clock;
    if (request->number == 2 && desk->apart) desk_end(desk, RUN_MISUSED, "stream_join before stream_end");
    desk->unjoined = request->number != 2;
    if (request->number == 2) clock_join(c, COMMUNICATION);
    else if (request->number == (desk->apart ? 1 : 0)) {
        desk->apart = request->number == 0;
        if (desk->apart) clock_begin(c, COMMUNICATION);
        else clock_end(c);
    } else desk_end(desk, RUN_MISUSED, desk->apart ? "stream_begin after stream_begin"
                    : "stream_end without stream_begin");
}

/* Take a line of say(), up to 200 characters. */
static void take_line(struct desk *desk, const struct request *request)
{
    char text[201] = "";
    if (request->payload > 200) desk_forged(desk);
    desk_hear(desk, text, request->payload);
    const size_t used = strlen(desk->run->lines);
    if (used < sizeof desk->run->lines - 1)
        snprintf(desk->run->lines + used, sizeof desk->run->lines - used, "device %d says: %s\n", desk->rank, text);
}

/* A function of course.h that a worker may not call, or calls wrongly. */
static void take_misuse(struct desk *desk, const struct request *request)
{
    char text[301] = "";
    if (request->payload > 300) desk_forged(desk);
    desk_hear(desk, text, request->payload);
    desk_end(desk, RUN_MISUSED, "%s", text);
}

/* The function has returned: take its results, and check that no stream is left open. */
static void take_results(struct desk *desk, const struct request *request)
{
    uint64_t sum = 0;
    if (desk->apart) desk_end(desk, RUN_MISUSED, "the function returned after stream_begin: stream_end() is missing");
    if (desk->unjoined)
        desk_end(desk, RUN_MISUSED, "the function returned while a stream was still working: stream_join() is missing");
    /* All results come in one payload, buffer after buffer. */
    for (int i = 0; i < WORKER_BUFFERS; i++)
        sum += desk->own->buffer[i].way & BUFFER_OUT ? desk->own->buffer[i].bytes : 0;
    if (request->payload != sum) desk_forged(desk);
    for (int i = 0; i < WORKER_BUFFERS; i++)
        if (desk->own->buffer[i].way & BUFFER_OUT)
            desk_hear(desk, desk->own->buffer[i].data, desk->own->buffer[i].bytes);
    desk->own->result = request->a, desk->own->real = request->real[0];
}

/* Serve the requests of one worker until it is done. */
void desk_serve(struct desk *desk)
{
    for (struct request q;;) {
        desk_hear(desk, &q, sizeof q);
        switch ((enum request_kind)q.kind) {
        case ASK_SEND: case ASK_RECEIVE: start_message(desk, &q); break;
        case ASK_WAIT: wait_message(desk, &q); break;
        case ASK_ALLOCATE: take_block(desk, &q); break;
        case ASK_RELEASE: give_block(desk, &q); break;
        case ASK_ADD: serve_requests_add(desk, &q); break;
        case ASK_WORK: serve_requests_compute(desk, &q); break;
        case ASK_TIME: desk_answer(desk, desk->device->clock.now, NULL, 0); break;
        case ASK_GROUP: make_group(desk, &q); break;
        case ASK_COLLECTIVE: do_collective(desk, &q); break;
        case ASK_STREAM: use_stream(desk, &q); break;
        case ASK_SAY: take_line(desk, &q); break;
        case ASK_MISUSE: take_misuse(desk, &q); break;
        case ASK_DONE: take_results(desk, &q); return;
        default: desk_forged(desk);
        }
    }
}
