/* reduce-scatter, pairwise exchange: every device sends every other device its block directly, one after another.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any counts.
 * Cost      steps  P-1
 *           bytes  n - |b(r)|;  adds  (P-1)|b(r)|
 * Memory    one block.
 * Rounding  on device r in the order r, r-1, r-2, ..
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 4, step 1:  0 -b1-> 1 -b2-> 2 -b3-> 3 -b0-> 0;  step 2: to the device two away;  step 3: three away
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code pairwise_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    const int64_t own = block_length(collective, P, r);
    struct exchange x = exchange_begin(group, REDUCE_SCATTER);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, own, &scratch, err);
    if (code == OK) copy_elements(&x, collective, collective->out, const_block(collective, collective->in, P, r), own);
    for (int step = 1; step < P && code == OK; step++) {
        /* Each step has another pair of partners; parts are added as they come, from near to far. */
        const int to = imod(r + step, P);
        code = send_and_add(&x, collective, to, const_block(collective, collective->in, P, to),
                            block_length(collective, P, to), imod(r - step, P), scratch, collective->out, own, err);
    }
    if (code == OK) reduce_finish(&x, collective->reduction, collective->dtype, collective->out, own);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost pairwise_cost(int r, int P, const struct collective *collective)
{
    const int64_t own = block_length(collective, P, r);
    return (struct collective_cost){ .messages = (uint64_t)(P - 1),
                                    .bytes = bytes_of(collective, block_total(collective, P) - own),
                                     .additions = (uint64_t)((P - 1) * own), .steps = (uint64_t)(P - 1) };
}

const struct algorithm reduce_scatter_pairwise = {
    .operation = REDUCE_SCATTER, .name = "pairwise",
    .description = "each block directly to its owner, one partner at a time",
    .order = BY_POSITION, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(P-1) a + n(P-1)/P b", .run = pairwise_run, .cost = pairwise_cost,
        .turns = turns_with_equal_blocks,
};
