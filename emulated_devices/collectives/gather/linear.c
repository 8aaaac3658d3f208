/* gather, linear: every device sends its block to the root.
 *
 * Source    elementary
 * Needs     any P, any counts, any root.
 * Cost      steps  P-1 through the root's port;  bytes  |b(r)| from each other device
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     1 -b1-> root      2 -b2-> root      3 -b3-> root
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code linear_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, GATHER);
    enum error_code code = OK;
    if (r != collective->root)
        return exchange_both(&x, collective->root, collective->in, bytes_of(collective, block_length(collective, P, r)),
                             -1, NULL, 0, err);
    for (int b = 0; b < P && code == OK; b++) {
        const uint64_t bytes = bytes_of(collective, block_length(collective, P, b));
        if (b == r) copy_elements(&x, collective, block(collective, collective->out, P, b), collective->in,
                                  block_length(collective, P, b));
        else code = exchange_both(&x, -1, NULL, 0, b, block(collective, collective->out, P, b), bytes, err);
    }
    return code;
}

static struct collective_cost gather_linear_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1), .depth = 1 };
    if (r != collective->root) cost_send(&cost, collective, block_length(collective, P, r));
    return cost;
}

const struct algorithm gather_linear = {
    .operation = GATHER, .name = "linear", .description = "everybody sends its block to the root",
    .source = "the obvious way", .cost_formula = "(P-1) a + n(P-1)/P b", .run = linear_run, .cost = gather_linear_cost,
};
