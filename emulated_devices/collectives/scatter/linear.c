/* scatter, linear: the root sends every device its block.
 *
 * Source    elementary
 * Needs     any P, any counts, any root.
 * Cost      steps  P-1 through the root's port;  bytes  n - |b(root)| at the root
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     root -b1-> 1      root -b2-> 2      root -b3-> 3
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code scatter_linear_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, SCATTER);
    enum error_code code = OK;
    if (r != collective->root)
        return exchange_both(&x, -1, NULL, 0, collective->root, collective->out,
                             bytes_of(collective, block_length(collective, P, r)), err);
    for (int b = 0; b < P && code == OK; b++) {
        const uint64_t bytes = bytes_of(collective, block_length(collective, P, b));
        if (b == r) copy_elements(&x, collective, collective->out, const_block(collective, collective->in, P, b),
                                  block_length(collective, P, b));
        else code = exchange_both(&x, b, const_block(collective, collective->in, P, b), bytes, -1, NULL, 0, err);
    }
    return code;
}

static struct collective_cost scatter_linear_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1), .depth = 1 };
    for (int b = 0; b < P && r == collective->root; b++)
        if (b != r) cost_send(&cost, collective, block_length(collective, P, b));
    return cost;
}

const struct algorithm scatter_linear = {
    .operation = SCATTER, .name = "linear", .description = "the root sends everybody its block",
    .source = "the obvious way", .cost_formula = "(P-1) a + n(P-1)/P b", .run = scatter_linear_run,
        .cost = scatter_linear_cost,
};
