#include "emulated_devices/comm/comm.h"

void reduce_local(struct exchange *x, enum reduction how, enum dtype t, void *into, const void *from, int64_t count)
{
    struct comm *c = x->group->comm;
    struct clock *clock = &c->device->clock;
    if (c->rehearsal != NULL) {
        c->rehearsal->additions += (uint64_t)count;
        return;
    }
    device_reduce(c->device, how, t, into, from, count);
    c->counted.of[x->group->kind].of[x->operation].additions += (uint64_t)count;
    if (x->operation == CONTROL) return;
    device_charge(c->device, "reduce", elementwise_cost(count, 3, 1, t));
    flight_read(clock->flight, clock->now, from, (uint64_t)count * dtype_size(t));
    clock_made(clock, into, (uint64_t)count * dtype_size(t));
    if (c->listener != NULL) c->listener->reduced(c->listener->context, x, t, into, count);
}

void reduce_finish(struct exchange *x, enum reduction how, enum dtype t, void *data, int64_t count)
{
    struct device *d = x->group->comm->device;
    if (how != AVERAGE || count == 0 || x->group->comm->rehearsal != NULL) return;
    device_divide(d, t, data, count, x->group->size);
    if (x->operation != CONTROL) device_charge(d, "divide", elementwise_cost(count, 2, 1, t));
}
