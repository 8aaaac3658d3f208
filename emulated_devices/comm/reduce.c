/* reduce.c -- the additions of collectives: numbers on the device, counts in the ledger, time on the clock.
 * collectives/ calls.  Errors come from the messages of exchange_reduce alone. */
#include "emulated_devices/comm/comm.h"

/* The kernel that sends and receives adds, too. */
static struct op_cost beside_messages(struct op_cost cost)
{
    cost.running = true;
    return cost;
}

void reduce_numbers(struct exchange *exchange, enum reduction how, enum dtype dtype, void *into, const void *from,
                    int64_t count)
{
    device_reduce(exchange->group->comm->device, how, dtype, into, from, count);
}

void reduce_numbers_of(struct exchange *exchange, enum reduction how, enum dtype dtype, void *into,
                       const void *const *part, int parts, int64_t count)
{
    device_reduce_all(exchange->group->comm->device, how, dtype, into, part, parts, count);
}

void reduce_counted(struct exchange *exchange, enum dtype dtype, void *into, const void *from, int64_t count)
{
    struct comm *c = exchange->group->comm;
    struct clock *clock = &c->device->clock;
    c->counted.of[exchange->group->kind].of[exchange->operation].additions += (uint64_t)count;
    if (exchange->operation == CONTROL) return;
    /* An addition reads two numbers and writes one, for one operation. */
    device_charge(c->device, "reduce", beside_messages(elementwise_cost(count, 3, 1, dtype)));
    flight_read(clock->flight, clock->now, from, (uint64_t)count * dtype_size(dtype));
    clock_made(clock, into, (uint64_t)count * dtype_size(dtype));
    if (c->listener != NULL) c->listener->reduced(c->listener->context, exchange, dtype, into, count);
}

void reduce_local(struct exchange *exchange, enum reduction how, enum dtype dtype, void *into, const void *from,
                  int64_t count)
{
    struct comm *c = exchange->group->comm;
    /* A rehearsal counts additions and touches no memory. */
    if (c->rehearsal != NULL) {
        c->rehearsal->additions += (uint64_t)count;
        return;
    }
    reduce_numbers(exchange, how, dtype, into, from, count);
    reduce_counted(exchange, dtype, into, from, count);
}

/* The sender waits until its numbers have been added, so they are added before this device waits for its own send.  The
 * clock adds after both, as if they had been received. */
static enum error_code reduce_where_it_is(struct exchange *exchange, int to, const void *out,
                                          uint64_t out_bytes, int from,
                                          void *scratch, enum reduction how, enum dtype dtype, void *into,
                                          int64_t count,
                                          struct error *err)
{
    struct comm *c = exchange->group->comm;
    struct message send = { -1 };
    const struct message receive = message_receive_to_look(exchange, from, scratch,
                                                           (uint64_t)count * dtype_size(dtype));
    if (to >= 0) send = message_send(exchange, to, out, out_bytes);
    /* A wrong message gives NULL here; message_wait then says what is wrong. */
    const void *there = message_look(c, receive);
    if (there != NULL) reduce_numbers(exchange, how, dtype, into, there, count);
    const enum error_code received = message_wait(c, receive, err);
    const enum error_code sent = to >= 0 ? message_wait(c, send, received == OK ? err : NULL) : OK;
    if (received != OK || sent != OK) return received != OK ? received : sent;
    reduce_counted(exchange, dtype, into, scratch, count);
    return OK;
}

enum error_code exchange_reduce(struct exchange *exchange, int to, const void *out, uint64_t out_bytes, int from,
                                void *scratch, enum reduction how, enum dtype dtype, void *into, int64_t count,
                                struct error *err)
{
    const uint64_t bytes = (uint64_t)count * dtype_size(dtype);
    if (messages_can_be_looked_at(exchange->group->comm))
        return reduce_where_it_is(exchange, to, out, out_bytes, from, scratch, how, dtype, into, count, err);
    const enum error_code code = exchange_both(exchange, to, out, out_bytes, from, scratch, bytes, err);
    if (code == OK) reduce_local(exchange, how, dtype, into, scratch, count);
    return code;
}

void reduce_finish(struct exchange *exchange, enum reduction how, enum dtype dtype, void *data, int64_t count)
{
    struct device *d = exchange->group->comm->device;
    if (how != AVERAGE || count == 0 || exchange->group->comm->rehearsal != NULL) return;
    device_divide(d, dtype, data, count, exchange->group->size);
    if (exchange->operation != CONTROL)
        device_charge(d, "divide", beside_messages(elementwise_cost(count, 2, 1, dtype)));
}
