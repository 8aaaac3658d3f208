#include "emulated_devices/comm/carrier.h"
#include "emulated_devices/comm/watch.h"
#include "emulated_devices/device/trace.h"
#include <stdio.h>

struct exchange exchange_begin(struct group *g, enum operation op)
{
    return (struct exchange){ .group = g, .operation = op, .number = g->exchanges++, .call = g->call };
}

struct exchange exchange_named(struct group *g, enum operation op, uint32_t name)
{
    return (struct exchange){ .group = g, .operation = op, .number = name, .named = true };
}

static struct traffic *counted(const struct exchange *x)
{
    return &x->group->comm->counted.of[x->group->kind].of[x->operation];
}

_Static_assert((int)TRAFFIC_KIND_COUNT <= (int)TRACE_KINDS, "a trace names the scheme of every kind");

/* Name the message for the trace; `serial` is N for the Nth message of its sender, at both ends. */
static void announce(const struct exchange *x, int peer, uint64_t bytes, int sender, uint32_t serial)
{
    char axes[64], name[TRACE_NAME];
    const int number = x->group->member[peer];
    snprintf(name, sizeof name, "%s over %s", operation_name(x->operation),
             axes_describe(x->group->axes, axes, sizeof axes));
    struct trace *t = x->group->comm->device->clock.trace;
    trace_announce(t, name, t->scheme[x->group->kind], bytes, number, (int64_t)sender << 32 | serial);
}

/* Count a message without sending it. */
static struct message rehearse_send(const struct exchange *x, int peer, uint64_t bytes)
{
    if (x->operation != CONTROL) traffic_send(x->group->comm->rehearsal, group_level(x->group, peer), bytes, 1);
    return (struct message){ 0 };
}

/* In a group with several devices of a class: only what all members do alike. */
static void must_turn(const struct exchange *x)
{
    char axes[64], why[160];
    const struct group *g = x->group;
    if (g->folds == GROUP_WHOLE || (g->folds == GROUP_TURNS && g->turns) || x->operation == CONTROL) return;
    snprintf(why, sizeof why, "%s %s over %s is not the same for all members", traffic_kind_name(g->kind),
             operation_name(x->operation), axes_describe(g->axes, axes, sizeof axes));
    g->comm->carrier->uneven(g, why);
}

struct message message_send(struct exchange *x, int peer, const void *data, uint64_t bytes)
{
    struct comm *c = x->group->comm;
    struct clock *clock = &c->device->clock;
    struct passage p = { .charged = false };
    struct traffic *t = counted(x);
    if (c->rehearsal != NULL) return rehearse_send(x, peer, bytes);
    must_turn(x);
    t->messages_sent++;
    t->bytes_sent += bytes;
    if (x->operation != CONTROL) {
        if (clock->trace != NULL) announce(x, peer, bytes, c->rank, clock->sent);
        clock->label = (uint8_t)x->group->kind;
        p = clock_send(clock, c->rank, x->group->member[peer], bytes);
        t->level[p.level].messages++;
        t->level[p.level].bytes += bytes;
    }
    if (x->operation != CONTROL) flight_read(clock->flight, clock->now, data, bytes);
    /* the slot and MPI take void *; a send only reads the buffer */
    const struct message m = { c->carrier->start(x, peer, (void *)(uintptr_t)data, bytes, &p, SENDS) };
    watch_begin(c, m.slot, x, peer, data, bytes, true);
    return m;
}

static struct message receive(struct exchange *x, int peer, void *data, uint64_t bytes, enum side side)
{
    struct comm *c = x->group->comm;
    struct passage p = { .charged = false };
    struct traffic *t = counted(x);
    if (c->rehearsal != NULL) return (struct message){ 0 };
    t->messages_received++;
    t->bytes_received += bytes;
    if (x->operation != CONTROL) {
        c->device->clock.label = (uint8_t)x->group->kind;
        p = clock_post(&c->device->clock, x->group->member[peer], c->rank, bytes);
    }
    const struct message m = { c->carrier->start(x, peer, data, bytes, &p, side) };
    watch_begin(c, m.slot, x, peer, data, bytes, false);
    return m;
}

struct message message_receive(struct exchange *x, int peer, void *data, uint64_t bytes)
{
    return receive(x, peer, data, bytes, RECEIVES);
}

struct message message_receive_to_look(struct exchange *x, int peer, void *data, uint64_t bytes)
{
    return receive(x, peer, data, bytes, LOOKS);
}

/* A flight and a listener want what is received in its place, and at its time. */
bool messages_can_be_looked_at(const struct comm *c)
{
    return c->rehearsal == NULL && c->carrier->look != NULL && c->device->clock.flight == NULL && c->listener == NULL;
}

const void *message_look(struct comm *c, struct message m)
{
    return m.slot >= 0 ? c->carrier->look(c, m.slot) : NULL;
}

void messages_meet(struct comm *c, const struct message *m, int number, bool sent)
{
    if (c->rehearsal == NULL && c->carrier->meet != NULL) c->carrier->meet(c, m, number, sent);
}

/* A message has arrived: charge the port and call the observer. */
static void arrived(struct comm *c, const struct delivery *d)
{
    struct clock *clock = &c->device->clock;
    const struct passage *p = &d->passage;
    if (clock->trace != NULL) announce(&d->exchange, d->peer, p->bytes, d->exchange.group->member[d->peer], p->serial);
    clock_receive(clock, p);
    clock_made(clock, d->data, p->bytes);
    if (c->listener != NULL) c->listener->received(c->listener->context, &d->exchange, d->peer, d->data, p->bytes);
}

enum error_code message_wait(struct comm *c, struct message m, struct error *err)
{
    struct delivery d;
    if (c->rehearsal != NULL) return OK;
    if (m.slot < 0) return fail(err, ERR_COMM, "device %d has no memory for another message", c->rank);
    watch_end(c, m.slot);
    const enum error_code code = c->carrier->wait(c, m.slot, &d, err);
    if (code != OK) watch_forgive(c);
    if (code != OK || !d.passage.charged) return code;
    if (d.sending) clock_sent(&c->device->clock, &d.passage);
    else arrived(c, &d);
    return OK;
}

void messages_have_ended(struct comm *c, const char *when) { watch_nothing_left(c, NULL, when); }

/* The receive is posted before the send, so that the peer's data has a destination. */
enum error_code exchange_both(struct exchange *x, int to, const void *out, uint64_t out_bytes,
                              int from, void *in, uint64_t in_bytes, struct error *err)
{
    struct comm *c = x->group->comm;
    struct message receive = { -1 }, send = { -1 };
    enum error_code received = OK, sent = OK;

    if (from >= 0) receive = message_receive(x, from, in, in_bytes);
    if (to >= 0) send = message_send(x, to, out, out_bytes);
    if (from >= 0) received = message_wait(c, receive, err);
    if (to >= 0) sent = message_wait(c, send, received == OK ? err : NULL);
    return received != OK ? received : sent;
}

static char nothing;                            /* stands for memory in a rehearsal, which touches none */

void *exchange_scratch(struct exchange *x, uint64_t bytes)
{
    struct arena *const a = &x->group->comm->device->arena;
    if (x->group->comm->rehearsal != NULL) return &nothing;
    return x->group->lists ? arena_alloc_list(a, BUFFERS, bytes) : arena_alloc(a, BUFFERS, bytes);
}

void exchange_release(struct exchange *x, void *scratch)
{
    if (scratch != &nothing) arena_free(&x->group->comm->device->arena, scratch);
}
