/* reduce-scatter, ring: each block goes once round the ring to its owner; every device on the way adds its part.
 *
 * Source    P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 *           J. Parallel Distrib. Comput. 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002 (its first half)
 * Needs     any P, any counts.
 * Cost      steps  P-1
 *           bytes  n - |b(r)|, the minimum;  adds  n - |b(r-1)|
 * Memory    two blocks of scratch: the input is only read.
 * Rounding  block b is added in the order of devices b+1, b+2, .., b.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 3:   b0: 1 -> 2 -> 0      b1: 2 -> 0 -> 1      b2: 0 -> 1 -> 2
 *          step 1: device r sends its own part of b(r-1);  step 2: the sum of b(r-2) it has just made
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code reduce_scatter_ring_run(struct group *group, const struct collective *collective,
                                               struct error *err)
{
    const int P = group->size, r = group->rank;
    const int64_t room = block_longest(collective, P);
    struct exchange x = exchange_begin(group, REDUCE_SCATTER);
    void *memory;
    enum error_code code = scratch_agreed(&x, collective, 2 * room, &memory, err);
    if (code != OK) return code;

    const void *give = const_block(collective, collective->in, P, imod(r - 1, P));
    for (int step = 1; step < P && code == OK; step++) {
        const int out = imod(r - step, P), in = imod(r - step - 1, P);
        /* Two areas take turns: the sum of this step is sent in the next one. */
        void *sum = element(collective, memory, step % 2 * room);
        code = exchange_both(&x, imod(r + 1, P), give, bytes_of(collective, block_length(collective, P, out)),
                             imod(r - 1, P), sum, bytes_of(collective, block_length(collective, P, in)), err);
        if (code == OK)
            reduce_local(&x, collective->reduction, collective->dtype, sum,
                         const_block(collective, collective->in, P, in), block_length(collective, P, in));
        give = sum;
    }
    if (code == OK) {
        copy_elements(&x, collective, collective->out, give, block_length(collective, P, r));
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, block_length(collective, P, r));
    }
    exchange_release(&x, memory);
    return code;
}

static struct collective_cost reduce_scatter_ring_cost(int r, int P, const struct collective *collective)
{
    const int64_t n = block_total(collective, P);
    return (struct collective_cost){ .messages = (uint64_t)(P - 1),
                                    .bytes = bytes_of(collective, n - block_length(collective, P, r)),
                                     .additions = (uint64_t)(n - block_length(collective, P, r - 1)),
                                     .steps = (uint64_t)(P - 1) };
}

const struct algorithm reduce_scatter_ring = {
    .operation = REDUCE_SCATTER, .name = "ring", .description = "each block once round the ring to its owner",
    .order = BY_POSITION, .source = "Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002",
    .cost_formula = "(P-1) a + n(P-1)/P b", .run = reduce_scatter_ring_run, .cost = reduce_scatter_ring_cost,
        .turns = turns_with_equal_blocks,
};
