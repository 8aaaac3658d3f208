#include "emulated_devices/schemes/data/stages/load.h"

static enum error_code read_home(struct load *l, struct tensor to, struct error *err)
{
    struct clock *clock = &l->tier->device->clock;
    l->read = tier_announce(l->tier, l->home, clock->now);
    const enum error_code e = tier_read(l->tier, to, l->home, &l->read, err);
    clock_wait(clock, l->read);
    return e;
}

enum error_code load_in_parts(struct load *l, struct error *err)
{
    const int64_t n = tensor_count(l->whole) / l->group->size;
    char *const own = (char *)l->whole.data + (size_t)(n * l->group->rank) * dtype_size(l->whole.dtype);
    const struct collective c = {
        .in = own, .out = l->whole.data, .count = tensor_count(l->whole), .dtype = l->whole.dtype
    };
    const enum error_code e = read_home(l, tensor_1d(own, l->whole.dtype, n), err);
    return e ? e : collective_run(l->group, ALLGATHER, NULL, &c, err);
}

enum error_code load_by_owner(struct load *l, int owner, struct error *err)
{
    void *const all = l->whole.data;
    const struct collective c = {
        .in = all, .out = all, .count = tensor_count(l->whole), .dtype = l->whole.dtype, .root = owner
    };
    const enum error_code e = l->group->rank == owner ? read_home(l, l->whole, err) : OK;
    return e ? e : collective_run(l->group, BROADCAST, NULL, &c, err);
}
