/* broadcast, flat: the root sends to all devices directly.
 *
 * Source    elementary
 * Needs     any P, any count, any root.
 * Cost      steps  P-1 through the root's port;  bytes  n(P-1) at the root
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     root --n--> 1      root --n--> 2      root --n--> 3
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code broadcast_flat_run(struct group *group, const struct collective *collective, struct error *err)
{
    const uint64_t bytes = bytes_of(collective, collective->count);
    struct exchange x = exchange_begin(group, BROADCAST);
    enum error_code code = OK;
    if (group->rank != collective->root)
        return exchange_both(&x, -1, NULL, 0, collective->root, collective->out, bytes, err);
    for (int k = 1; k < group->size && code == OK; k++)
        code = exchange_both(&x, imod(collective->root + k, group->size), collective->out, bytes, -1, NULL, 0, err);
    return code;
}

static struct collective_cost flat_cost(int r, int P, const struct collective *collective)
{
    const uint64_t sends = r == collective->root ? (uint64_t)(P - 1) : 0;
    return (struct collective_cost){
        .messages = sends, .bytes = sends * bytes_of(collective, collective->count),
            .steps = (uint64_t)(P - 1), .depth = 1
    };
}

const struct algorithm broadcast_flat = {
    .operation = BROADCAST, .name = "flat", .description = "the root sends to everybody itself",
    .source = "the obvious way", .cost_formula = "(P-1) (a + n b)", .run = broadcast_flat_run, .cost = flat_cost,
};
