#include "emulated_devices/comm/comm.h"

/* The kernel that sends and receives adds, too. */
static struct op_cost beside_messages(struct op_cost cost)
{
    cost.running = true;
    return cost;
}

void reduce_numbers(struct exchange *x, enum reduction how, enum dtype t, void *into, const void *from, int64_t count)
{
    device_reduce(x->group->comm->device, how, t, into, from, count);
}

void reduce_numbers_of(struct exchange *x, enum reduction how, enum dtype t, void *into, const void *const *part,
                       int parts, int64_t count)
{
    device_reduce_all(x->group->comm->device, how, t, into, part, parts, count);
}

void reduce_counted(struct exchange *x, enum dtype t, void *into, const void *from, int64_t count)
{
    struct comm *c = x->group->comm;
    struct clock *clock = &c->device->clock;
    c->counted.of[x->group->kind].of[x->operation].additions += (uint64_t)count;
    if (x->operation == CONTROL) return;
    device_charge(c->device, "reduce", beside_messages(elementwise_cost(count, 3, 1, t)));
    flight_read(clock->flight, clock->now, from, (uint64_t)count * dtype_size(t));
    clock_made(clock, into, (uint64_t)count * dtype_size(t));
    if (c->listener != NULL) c->listener->reduced(c->listener->context, x, t, into, count);
}

void reduce_local(struct exchange *x, enum reduction how, enum dtype t, void *into, const void *from, int64_t count)
{
    struct comm *c = x->group->comm;
    /* A rehearsal counts additions and touches no memory. */
    if (c->rehearsal != NULL) {
        c->rehearsal->additions += (uint64_t)count;
        return;
    }
    reduce_numbers(x, how, t, into, from, count);
    reduce_counted(x, t, into, from, count);
}

/* The sender waits until its numbers have been added, so they are added before this device waits for its own send.  The
 * clock adds after both, as if they had been received. */
static enum error_code reduce_where_it_is(struct exchange *x, int to, const void *out, uint64_t out_bytes, int from,
                                          void *scratch, enum reduction how, enum dtype t, void *into, int64_t count,
                                          struct error *err)
{
    struct comm *c = x->group->comm;
    struct message send = { -1 };
    const struct message receive = message_receive_to_look(x, from, scratch, (uint64_t)count * dtype_size(t));
    if (to >= 0) send = message_send(x, to, out, out_bytes);
    const void *there = message_look(c, receive);
    if (there != NULL) reduce_numbers(x, how, t, into, there, count);
    const enum error_code received = message_wait(c, receive, err);
    const enum error_code sent = to >= 0 ? message_wait(c, send, received == OK ? err : NULL) : OK;
    if (received != OK || sent != OK) return received != OK ? received : sent;
    reduce_counted(x, t, into, scratch, count);
    return OK;
}

enum error_code exchange_reduce(struct exchange *x, int to, const void *out, uint64_t out_bytes, int from,
                                void *scratch, enum reduction how, enum dtype t, void *into, int64_t count,
                                struct error *err)
{
    const uint64_t bytes = (uint64_t)count * dtype_size(t);
    if (messages_can_be_looked_at(x->group->comm))
        return reduce_where_it_is(x, to, out, out_bytes, from, scratch, how, t, into, count, err);
    const enum error_code code = exchange_both(x, to, out, out_bytes, from, scratch, bytes, err);
    if (code == OK) reduce_local(x, how, t, into, scratch, count);
    return code;
}

void reduce_finish(struct exchange *x, enum reduction how, enum dtype t, void *data, int64_t count)
{
    struct device *d = x->group->comm->device;
    if (how != AVERAGE || count == 0 || x->group->comm->rehearsal != NULL) return;
    device_divide(d, t, data, count, x->group->size);
    if (x->operation != CONTROL) device_charge(d, "divide", beside_messages(elementwise_cost(count, 2, 1, t)));
}
