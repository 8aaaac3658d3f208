/* allreduce, tree: reduce to device 0 on a binomial tree, then broadcast on the same tree.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, doi:10.1177/1094342005051521 (reduce followed by broadcast)
 * Needs     any P, any count.
 * Cost      steps  2 ceil(log2 P)
 *           bytes  n up from all but device 0, and n down to every child
 *           adds   n for every child
 * Memory    n elements of scratch at devices with children.
 * Rounding  one sum, in the order of the tree.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5:   0 <- 1,  0 <- 2 <- 3,  0 <- 4;  then the same arrows reversed
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code allreduce_tree_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, ALLREDUCE);
    void *scratch;
    /* Only even devices receive from children, so odd ones need no scratch. */
    enum error_code code = scratch_agreed(&x, collective, group->rank % 2 == 0 ? collective->count : 0, &scratch, err);
    if (code == OK) code = binomial_reduce(&x, collective, 0, collective->out, collective->count, scratch, err);
    if (code == OK && group->rank == 0)
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    if (code == OK) code = binomial_broadcast(&x, collective, 0, collective->out, collective->count, err);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost allreduce_tree_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    binomial_cost(&cost, collective, r, P, 0, collective->count, true);
    binomial_cost(&cost, collective, r, P, 0, collective->count, false);
    return cost;
}

const struct algorithm allreduce_tree = {
    .operation = ALLREDUCE, .name = "tree", .description = "up a binomial tree and down again",
    .order = BY_TREE, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "2 ceil(log2 P) (a + n b)", .run = allreduce_tree_run, .cost = allreduce_tree_cost,
};
