/* reduce, flat: all devices send to the root, which adds.
 *
 * Source    elementary
 * Needs     any P, any count, any root.
 * Cost      steps  P-1 through the root's port;  bytes  n from each other device;  adds  n(P-1) at the root
 * Memory    n elements at the root.
 * Rounding  the root's own vector first, then in the order of devices.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     1 --n--> root      2 --n--> root      3 --n--> root
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code flat_run(struct group *group, const struct collective *collective, struct error *err)
{
    const bool root = group->rank == collective->root;
    const uint64_t bytes = bytes_of(collective, collective->count);
    struct exchange x = exchange_begin(group, REDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, root ? collective->count : 0, &scratch, err);
    if (code == OK && !root) code = exchange_both(&x, collective->root, collective->in, bytes, -1, NULL, 0, err);
    if (code == OK && root) copy_elements(&x, collective, collective->out, collective->in, collective->count);
    for (int r = 0; r < group->size && root && code == OK; r++) {
        if (r == collective->root) continue;
        code = add_from(&x, collective, r, scratch, collective->out, collective->count, err);
    }
    if (code == OK && root)
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost reduce_flat_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1), .depth = 1 };
    if (r == collective->root) cost.additions = (uint64_t)(P - 1) * (uint64_t)collective->count;
    else cost_send(&cost, collective, collective->count);
    return cost;
}

const struct algorithm reduce_flat = {
    .operation = REDUCE, .name = "flat", .description = "everybody sends to the root, which adds",
    .order = BY_TREE, .source = "the obvious way", .cost_formula = "(P-1) (a + n b)", .run = flat_run,
        .cost = reduce_flat_cost,
};
