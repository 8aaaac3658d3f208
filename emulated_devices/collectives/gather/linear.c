/* gather, linear: every device sends its block to the root.
 *
 * Source    elementary
 * Needs     any P, any counts, any root.
 * Cost      steps  P-1 through the root's port;  bytes  |b(r)| from each other device
 * Memory    none.
 * Rounding  permutes: bits are equal.
 *
 *     1 -b1-> root      2 -b2-> root      3 -b3-> root
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    struct exchange x = exchange_begin(g, GATHER);
    enum error_code code = OK;
    if (r != c->root)
        return exchange_both(&x, c->root, c->in, bytes_of(c, block_length(c, P, r)), -1, NULL, 0, err);
    for (int b = 0; b < P && code == OK; b++) {
        const uint64_t bytes = bytes_of(c, block_length(c, P, b));
        if (b == r) copy_elements(&x, c, block(c, c->out, P, b), c->in, block_length(c, P, b));
        else code = exchange_both(&x, -1, NULL, 0, b, block(c, c->out, P, b), bytes, err);
    }
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1), .depth = 1 };
    if (r != c->root) cost_send(&cost, c, block_length(c, P, r));
    return cost;
}

const struct algorithm gather_linear = {
    .operation = GATHER, .name = "linear", .description = "everybody sends its block to the root",
    .source = "the obvious way", .cost_formula = "(P-1) a + n(P-1)/P b", .run = run, .cost = cost,
};
