/* gather, binomial tree: each device sends the blocks of its subtree up to its parent.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any counts, any root.
 * Idea      number the devices from the root.  The subtree below device v is v .. v + bit - 1, bit the lowest one set
 *           in v: its blocks are sent in one message.
 * Cost      steps  ceil(log2 P);  bytes  the blocks of the device's subtree
 * Memory    the blocks of the subtree, in the order of the tree.
 * Rounding  permutes: bits are equal.
 *
 * P = 6, root 0:   1 -b1-> 0     3 -b3-> 2     5 -b5-> 4     2 -b2 b3-> 0     4 -b4 b5-> 0
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank, v = imod(r - c->root, P);
    const struct parts p = { P, c->root, true };
    struct exchange x = exchange_begin(g, GATHER);
    void *parts;
    enum error_code code = scratch_agreed(&x, c, part_edge(c, p, subtree_end(v, P)) - part_edge(c, p, v), &parts, err);
    if (code != OK) return code;
    copy_elements(&x, c, parts, c->in, block_length(c, P, r));
    code = binomial_gather(&x, c, p, parts, err);
    if (code == OK && v == 0) comb_unpack(&x, c, (struct comb){ c->root, 1, P }, c->out, parts);
    exchange_release(&x, parts);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { 0 };
    binomial_parts_cost(&cost, c, (struct parts){ P, c->root, true }, r, false);
    return cost;
}

const struct algorithm gather_binomial = {
    .operation = GATHER, .name = "binomial", .description = "blocks gather on their way up a tree",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "ceil(log2 P) a + n(P-1)/P b", .run = run, .cost = cost,
};
