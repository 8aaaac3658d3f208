/* scatter, binomial tree: each device receives the blocks of its subtree and sends its children theirs.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any counts, any root.
 * Idea      number the devices from the root.  The subtree below device v is v .. v + bit - 1, bit the lowest one set
 *           in v: its blocks are sent in one message.
 * Cost      steps  ceil(log2 P);  bytes  the blocks of the children's subtrees
 * Memory    the blocks of the subtree, in the order of the tree.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 6, root 0:   0 -b4 b5-> 4     0 -b2 b3-> 2     4 -b5-> 5     2 -b3-> 3     0 -b1-> 1
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code scatter_binomial_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank, v = imod(r - collective->root, P);
    const struct parts p = { P, collective->root, true };
    struct exchange x = exchange_begin(group, SCATTER);
    void *parts;
    enum error_code code = scratch_agreed(&x, collective, part_edge(collective, p, subtree_end(v, P))
                                          - part_edge(collective, p, v), &parts, err);
    if (code != OK) return code;
    if (v == 0) comb_pack(&x, collective, (struct comb){ collective->root, 1, P }, parts, collective->in);
    code = binomial_scatter(&x, collective, p, parts, err);
    if (code == OK) copy_elements(&x, collective, collective->out, parts, block_length(collective, P, r));
    exchange_release(&x, parts);
    return code;
}

static struct collective_cost scatter_binomial_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    binomial_parts_cost(&cost, collective, (struct parts){ P, collective->root, true }, r, true);
    return cost;
}

const struct algorithm scatter_binomial = {
    .operation = SCATTER, .name = "binomial", .description = "blocks part on their way down a tree",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "ceil(log2 P) a + n(P-1)/P b", .run = scatter_binomial_run, .cost = scatter_binomial_cost,
};
