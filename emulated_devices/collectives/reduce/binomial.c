/* reduce, binomial tree: in every step half of the active devices send their sum and are done.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any count, any root.
 * Cost      steps  ceil(log2 P), the minimum;  bytes  n from all but the root;  adds  n for each child
 * Memory    a copy of the vector (the input is only read) and a receive buffer of the same size.
 * Rounding  in the order of the tree: ((0+1)+(2+3))+..
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 6, root 0; the number is the step:    0 <-1- 1     2 <-1- 3     4 <-1- 5     0 <-2- 2     0 <-3- 4
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code reduce_binomial_run(struct group *group, const struct collective *collective, struct error *err)
{
    const bool root = group->rank == collective->root;
    struct exchange x = exchange_begin(group, REDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, root ? collective->count : 2 * collective->count,
                                          &scratch, err);
    if (code != OK) return code;
    void *sums = root ? collective->out : element(collective, scratch, collective->count);
    copy_elements(&x, collective, sums, collective->in, collective->count);
    code = binomial_reduce(&x, collective, collective->root, sums, collective->count, scratch, err);
    if (code == OK && root)
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost reduce_binomial_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    binomial_cost(&cost, collective, r, P, collective->root, collective->count, true);
    return cost;
}

const struct algorithm reduce_binomial = {
    .operation = REDUCE, .name = "binomial", .description = "half of those left send and are done: the fewest steps",
    .order = BY_TREE, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "ceil(log2 P) (a + n b)", .vectors = 2, .run = reduce_binomial_run, .cost = reduce_binomial_cost,
};
