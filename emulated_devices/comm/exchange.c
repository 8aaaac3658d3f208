/* exchange.c -- starts and waits for messages, counts them in the ledger, and moves the virtual clock.  All of
 * collectives/, schemes/ and model/ call these functions.  A carrier moves the bytes.  ERR_COMM names a device that
 * has no memory for a message; other errors are the carrier's. */
#include "emulated_devices/comm/carrier.h"
#include "emulated_devices/comm/recorder.h"
#include "emulated_devices/comm/watch.h"
#include "emulated_devices/device/trace.h"
#include <stdio.h>

struct exchange exchange_begin(struct group *group, enum operation op)
{
    return (struct exchange){ .group = group, .operation = op, .number = group->exchanges++, .call = group->call };
}

struct exchange exchange_named(struct group *group, enum operation op, uint32_t name)
{
    return (struct exchange){ .group = group, .operation = op, .number = name, .named = true };
}

/* The group's kind and the operation choose the row of the ledger. */
static struct traffic *counted(const struct exchange *exchange)
{
    return &exchange->group->comm->counted.of[exchange->group->kind].of[exchange->operation];
}

static int process_of(const struct exchange *exchange, int peer)
{
    return comm_process(exchange->group->comm, exchange->group->member[peer]);
}

_Static_assert((int)TRAFFIC_KIND_COUNT <= (int)TRACE_KINDS, "a trace names the scheme of every kind");

/* Name the message for the trace; `serial` is N for the Nth message of its sender, at both ends. */
static void exchange_announce(const struct exchange *exchange, int peer, uint64_t bytes, int sender, uint32_t serial)
{
    char axes[64], name[TRACE_NAME];
    const int number = process_of(exchange, peer);
    snprintf(name, sizeof name, "%s over %s", operation_name(exchange->operation),
             axes_describe(exchange->group->axes, axes, sizeof axes));
    struct trace *t = exchange->group->comm->device->clock.trace;
    trace_announce(t, name, t->scheme[exchange->group->kind], bytes, number, (int64_t)sender << 32 | serial);
}

/* Count a message without sending it. */
static struct message rehearse_send(const struct exchange *exchange, int peer, uint64_t bytes)
{
    if (exchange->operation != CONTROL)
        traffic_send(exchange->group->comm->rehearsal, group_level(exchange->group, peer), bytes, 1);
    return (struct message){ 0 };
}

/* In a group with several devices of a class: only what all members do alike. */
static void must_turn(const struct exchange *exchange)
{
    char axes[64], why[160];
    const struct group *g = exchange->group;
    if (g->folds == GROUP_WHOLE || (g->folds == GROUP_TURNS && g->turns) || exchange->operation == CONTROL) return;
    snprintf(why, sizeof why, "%s %s over %s is not the same for all members", traffic_kind_name(g->kind),
             operation_name(exchange->operation), axes_describe(g->axes, axes, sizeof axes));
    g->comm->carrier->uneven(g, why);
}

struct message message_send(struct exchange *exchange, int peer, const void *data, uint64_t bytes)
{
    struct comm *c = exchange->group->comm;
    struct clock *clock = &c->device->clock;
    struct passage p = { .charged = false };
    struct traffic *t = counted(exchange);
    if (c->rehearsal != NULL) return rehearse_send(exchange, peer, bytes);
    must_turn(exchange);
    t->messages_sent++;
    t->bytes_sent += bytes;
    if (exchange->operation != CONTROL) {
        if (clock->trace != NULL) exchange_announce(exchange, peer, bytes, comm_process(c, c->rank),
                                                    clock->sent);
        clock->label = (uint8_t)exchange->group->kind;
        recorder_sends(c, exchange->group->member[peer]);
        p = clock_send(clock, comm_process(c, c->rank), process_of(exchange, peer), bytes);
        t->level[p.level].messages++;
        t->level[p.level].bytes += bytes;
    }
    if (exchange->operation != CONTROL) flight_read(clock->flight, clock->now, data, bytes);
    /* the slot and MPI take void *; a send only reads the buffer */
    const struct message m = { c->carrier->start(exchange, peer, (void *)(uintptr_t)data, bytes, &p, SENDS) };
    watch_begin(c, m.slot, exchange, peer, data, bytes, true);
    return m;
}

/* Post a receive: count it, and tell the clock when it was posted, for a sender that waits. */
static struct message exchange_receive(struct exchange *exchange, int peer, void *data, uint64_t bytes, enum side side)
{
    struct comm *c = exchange->group->comm;
    struct passage p = { .charged = false };
    struct traffic *t = counted(exchange);
    if (c->rehearsal != NULL) return (struct message){ 0 };
    t->messages_received++;
    t->bytes_received += bytes;
    if (exchange->operation != CONTROL) {
        c->device->clock.label = (uint8_t)exchange->group->kind;
        p = clock_post(&c->device->clock, process_of(exchange, peer), comm_process(c, c->rank), bytes);
    }
    const struct message m = { c->carrier->start(exchange, peer, data, bytes, &p, side) };
    watch_begin(c, m.slot, exchange, peer, data, bytes, false);
    return m;
}

struct message message_receive(struct exchange *exchange, int peer, void *data, uint64_t bytes)
{
    return exchange_receive(exchange, peer, data, bytes, RECEIVES);
}

struct message message_receive_to_look(struct exchange *exchange, int peer, void *data, uint64_t bytes)
{
    return exchange_receive(exchange, peer, data, bytes, LOOKS);
}

/* A flight and a listener want what is received in its place, and at its time. */
bool messages_can_be_looked_at(const struct comm *comm)
{
    return comm->rehearsal == NULL && comm->carrier->look != NULL && comm->device->clock.flight == NULL
           && comm->listener == NULL;
}

const void *message_look(struct comm *comm, struct message message)
{
    return message.slot >= 0 ? comm->carrier->look(comm, message.slot) : NULL;
}

void messages_meet(struct comm *comm, const struct message *message, int number, bool sent)
{
    if (comm->rehearsal == NULL && comm->carrier->meet != NULL) comm->carrier->meet(comm, message, number, sent);
}

/* A message has arrived: charge the port and call the observer. */
static void arrived(struct comm *comm, struct delivery *delivery)
{
    struct clock *clock = &comm->device->clock;
    struct passage *p = &delivery->passage;
    if (clock->trace != NULL) exchange_announce(&delivery->exchange, delivery->peer, p->bytes,
                                                process_of(&delivery->exchange, delivery->peer), p->serial);
    const picoseconds since = clock->now;
    clock_receive(clock, p);
    recorder_arrived(comm, &delivery->exchange, delivery->exchange.group->member[delivery->peer], p, since);
    clock_made(clock, delivery->data, p->bytes);
    if (comm->listener != NULL) comm->listener->received(comm->listener->context, &delivery->exchange, delivery->peer,
                                                         delivery->data, p->bytes);
}

enum error_code message_wait(struct comm *comm, struct message message, struct error *err)
{
    struct delivery d;
    if (comm->rehearsal != NULL) return OK;
    if (message.slot < 0) return fail(err, ERR_COMM, "device %d has no memory for another message", comm->rank);
    /* The watch judges the buffer before the carrier fills it. */
    watch_end(comm, message.slot);
    const enum error_code code = comm->carrier->wait(comm, message.slot, &d, err);
    recorder_goes_on(comm);
    if (code != OK) watch_forgive(comm);
    if (code != OK || !d.passage.charged) return code;
    if (d.sending) clock_sent(&comm->device->clock, &d.passage);
    else arrived(comm, &d);
    return OK;
}

void messages_have_ended(struct comm *comm, const char *when) { watch_nothing_left(comm, NULL, when); }

/* The receive is posted before the send, so that the peer's data has a destination. */
enum error_code exchange_both(struct exchange *exchange, int to, const void *out, uint64_t out_bytes,
                              int from, void *in, uint64_t in_bytes, struct error *err)
{
    struct comm *c = exchange->group->comm;
    struct message receive = { -1 }, send = { -1 };
    enum error_code received = OK, sent = OK;

    if (from >= 0) receive = message_receive(exchange, from, in, in_bytes);
    if (to >= 0) send = message_send(exchange, to, out, out_bytes);
    /* Both messages are waited for also after an error, because the carrier uses their buffers; the first error
     * counts. */
    if (from >= 0) received = message_wait(c, receive, err);
    if (to >= 0) sent = message_wait(c, send, received == OK ? err : NULL);
    return received != OK ? received : sent;
}

static char nothing;                            /* stands for memory in a rehearsal, which touches none */

void *exchange_scratch(struct exchange *exchange, uint64_t bytes)
{
    struct arena *const a = &exchange->group->comm->device->arena;
    if (exchange->group->comm->rehearsal != NULL) return &nothing;
    return exchange->group->lists ? arena_alloc_list(a, BUFFERS, bytes) : arena_alloc(a, BUFFERS, bytes);
}

void exchange_release(struct exchange *exchange, void *scratch)
{
    if (scratch != &nothing) arena_free(&exchange->group->comm->device->arena, scratch);
}
