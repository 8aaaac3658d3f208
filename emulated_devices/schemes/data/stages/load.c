/* load.c -- two ways to bring a unit's weights from the slow tier to all devices of a group.
 *
 * Only bench/offload/offload.c calls these functions, to compare the two ways.  Both are collective over the group.
 */
#include "emulated_devices/schemes/data/stages/load.h"

/* read_home copies this device's home to `to`, and the compute stream waits for the copy. */
static enum error_code read_home(struct load *load, struct tensor to, struct error *err)
{
    struct clock *clock = &load->tier->device->clock;
    load->read = tier_announce(load->tier, load->home, clock->now);
    const enum error_code e = tier_read(load->tier, to, load->home, &load->read, err);
    clock_wait(clock, load->read);
    return e;
}

enum error_code load_in_parts(struct load *load, struct error *err)
{
    /* Every device reads n = whole / P elements to its own place; the all-gather fills in the others' places. */
    const int64_t n = tensor_count(load->whole) / load->group->size;
    char *const own = (char *)load->whole.data + (size_t)(n * load->group->rank) * dtype_size(load->whole.dtype);
    const struct collective c = {
        .in = own, .out = load->whole.data, .count = tensor_count(load->whole), .dtype = load->whole.dtype
    };
    const enum error_code e = read_home(load, tensor_1d(own, load->whole.dtype, n), err);
    return e ? e : collective_run(load->group, ALLGATHER, NULL, &c, err);
}

enum error_code load_by_owner(struct load *load, int owner, struct error *err)
{
    void *const all = load->whole.data;
    const struct collective c = {
        .in = all, .out = all, .count = tensor_count(load->whole), .dtype = load->whole.dtype, .root = owner
    };
    /* Only the owner's link carries the bytes; the broadcast then sends all of these bytes. */
    const enum error_code e = load->group->rank == owner ? read_home(load, load->whole, err) : OK;
    return e ? e : collective_run(load->group, BROADCAST, NULL, &c, err);
}
