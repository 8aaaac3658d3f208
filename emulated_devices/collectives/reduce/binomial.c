/* reduce, binomial tree: in every step half of the active devices send their sum and are done.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any count, any root.
 * Cost      steps  ceil(log2 P), the minimum;  bytes  n from all but the root;  adds  n for each child
 * Memory    a copy of the vector (the input is only read) and a receive buffer of the same size.
 * Rounding  in the order of the tree: ((0+1)+(2+3))+..
 *
 * P = 6, root 0; the number is the step:    0 <-1- 1     2 <-1- 3     4 <-1- 5     0 <-2- 2     0 <-3- 4
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const bool root = g->rank == c->root;
    struct exchange x = exchange_begin(g, REDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, c, root ? c->count : 2 * c->count, &scratch, err);
    if (code != OK) return code;
    void *sums = root ? c->out : element(c, scratch, c->count);
    copy_elements(&x, c, sums, c->in, c->count);
    code = binomial_reduce(&x, c, c->root, sums, c->count, scratch, err);
    if (code == OK && root) reduce_finish(&x, c->reduction, c->dtype, c->out, c->count);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { 0 };
    binomial_cost(&cost, c, r, P, c->root, c->count, true);
    return cost;
}

const struct algorithm reduce_binomial = {
    .operation = REDUCE, .name = "binomial", .description = "half of those left send and are done: the fewest steps",
    .order = BY_TREE, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "ceil(log2 P) (a + n b)", .run = run, .cost = cost,
};
