#include "emulated_devices/comm/transport.h"

struct exchange exchange_begin(struct group *g, enum operation op)
{
    return (struct exchange){ .group = g, .operation = op, .number = g->exchanges++ };
}

struct exchange exchange_named(struct group *g, enum operation op, uint32_t name)
{
    return (struct exchange){ .group = g, .operation = op, .number = name, .named = true };
}

static struct traffic *counted(const struct exchange *x)
{
    return &x->group->comm->traffic[x->group->axes][x->operation];
}

struct message message_send(struct exchange *x, int peer, const void *data, uint64_t bytes)
{
    struct traffic *t = counted(x);
    t->messages_sent++;
    t->bytes_sent += bytes;
    const picoseconds stamp = x->operation == CONTROL ? 0 : clock_send(&x->group->comm->device->clock, bytes);
    /* MPI and the slot know a buffer as void *; a send only reads it. */
    return (struct message){ transport_start(x, peer, (void *)(uintptr_t)data, bytes, stamp, true) };
}

struct message message_receive(struct exchange *x, int peer, void *data, uint64_t bytes)
{
    struct traffic *t = counted(x);
    t->messages_received++;
    t->bytes_received += bytes;
    return (struct message){ transport_start(x, peer, data, bytes, 0, false) };
}

enum error_code message_wait(struct comm *c, struct message m, struct error *err)
{
    picoseconds stamp = 0;
    if (m.slot < 0) return fail(err, ERR_COMM, "device %d has no memory for another message", c->rank);
    const struct slot *s = &c->transport->slot[m.slot];
    const bool charged = !s->sending && s->exchange.operation != CONTROL;
    const uint64_t bytes = s->bytes;

    const enum error_code code = transport_wait(c, m.slot, &stamp, err);
    if (code == OK && charged) clock_receive(&c->device->clock, stamp, bytes);
    return code;
}

/* Receives are posted before the send, so that the peer's data has a place to go. */
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

void *exchange_scratch(struct exchange *x, uint64_t bytes)
{
    return arena_alloc(&x->group->comm->device->arena, BUFFERS, bytes);
}

void exchange_release(struct exchange *x, void *scratch)
{
    arena_free(&x->group->comm->device->arena, scratch);
}
