/* allreduce, tree: reduce to device 0 on a binomial tree, then broadcast on the same tree.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, doi:10.1177/1094342005051521 (reduce followed by broadcast)
 * Needs     any P, any count.
 * Cost      steps  2 ceil(log2 P)
 *           bytes  n up from all but device 0, and n down to every child
 *           adds   n for every child
 * Memory    n elements of scratch at devices with children.
 * Rounding  one sum, in the order of the tree.
 *
 * P = 5:   0 <- 1,  0 <- 2 <- 3,  0 <- 4;  then the same arrows reversed
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    struct exchange x = exchange_begin(g, ALLREDUCE);
    void *scratch;
    /* Only even devices receive from children, so odd ones need no scratch. */
    enum error_code code = scratch_agreed(&x, c, g->rank % 2 == 0 ? c->count : 0, &scratch, err);
    if (code == OK) code = binomial_reduce(&x, c, 0, c->out, c->count, scratch, err);
    if (code == OK && g->rank == 0) reduce_finish(&x, c->reduction, c->dtype, c->out, c->count);
    if (code == OK) code = binomial_broadcast(&x, c, 0, c->out, c->count, err);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { 0 };
    binomial_cost(&cost, c, r, P, 0, c->count, true);
    binomial_cost(&cost, c, r, P, 0, c->count, false);
    return cost;
}

const struct algorithm allreduce_tree = {
    .operation = ALLREDUCE, .name = "tree", .description = "up a binomial tree and down again",
    .order = BY_TREE, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "2 ceil(log2 P) (a + n b)", .run = run, .cost = cost,
};
