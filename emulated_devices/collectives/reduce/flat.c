/* reduce, flat: all devices send to the root, which adds.
 *
 * Source    elementary
 * Needs     any P, any count, any root.
 * Cost      steps  P-1 through the root's port;  bytes  n from each other device;  adds  n(P-1) at the root
 * Memory    n elements at the root.
 * Rounding  the root's own vector first, then in the order of devices.
 *
 *     1 --n--> root      2 --n--> root      3 --n--> root
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const bool root = g->rank == c->root;
    const uint64_t bytes = bytes_of(c, c->count);
    struct exchange x = exchange_begin(g, REDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, c, root ? c->count : 0, &scratch, err);
    if (code == OK && !root) code = exchange_both(&x, c->root, c->in, bytes, -1, NULL, 0, err);
    if (code == OK && root) copy_elements(&x, c, c->out, c->in, c->count);
    for (int r = 0; r < g->size && root && code == OK; r++) {
        if (r == c->root) continue;
        code = add_from(&x, c, r, scratch, c->out, c->count, err);
    }
    if (code == OK && root) reduce_finish(&x, c->reduction, c->dtype, c->out, c->count);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1), .depth = 1 };
    if (r == c->root) cost.additions = (uint64_t)(P - 1) * (uint64_t)c->count;
    else cost_send(&cost, c, c->count);
    return cost;
}

const struct algorithm reduce_flat = {
    .operation = REDUCE, .name = "flat", .description = "everybody sends to the root, which adds",
    .order = BY_TREE, .source = "the obvious way", .cost_formula = "(P-1) (a + n b)", .run = run, .cost = cost,
};
