/* reduce-scatter, ring: each block goes once round the ring to its owner; every device on the way adds its part.
 *
 * Source    P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 *           J. Parallel Distrib. Comput. 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002 (its first half)
 * Needs     any P, any counts.
 * Cost      steps  P-1
 *           bytes  n - |b(r)|, the minimum;  adds  n - |b(r-1)|
 * Memory    two blocks of scratch: the input is only read.
 * Rounding  block b is added in the order of devices b+1, b+2, .., b.
 *
 * P = 3:   b0: 1 -> 2 -> 0      b1: 2 -> 0 -> 1      b2: 0 -> 1 -> 2
 *          step 1: device r sends its own part of b(r-1);  step 2: the sum of b(r-2) it has just made
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    const int64_t room = block_longest(c, P);
    struct exchange x = exchange_begin(g, REDUCE_SCATTER);
    void *memory;
    enum error_code code = scratch_agreed(&x, c, 2 * room, &memory, err);
    if (code != OK) return code;

    const void *give = const_block(c, c->in, P, imod(r - 1, P));
    for (int step = 1; step < P && code == OK; step++) {
        const int out = imod(r - step, P), in = imod(r - step - 1, P);
        /* Two areas take turns: the sum of this step is sent in the next one. */
        void *sum = element(c, memory, step % 2 * room);
        code = exchange_both(&x, imod(r + 1, P), give, bytes_of(c, block_length(c, P, out)),
                             imod(r - 1, P), sum, bytes_of(c, block_length(c, P, in)), err);
        if (code == OK)
            reduce_local(&x, c->reduction, c->dtype, sum, const_block(c, c->in, P, in), block_length(c, P, in));
        give = sum;
    }
    if (code == OK) {
        copy_elements(&x, c, c->out, give, block_length(c, P, r));
        reduce_finish(&x, c->reduction, c->dtype, c->out, block_length(c, P, r));
    }
    exchange_release(&x, memory);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const int64_t n = block_total(c, P);
    return (struct collective_cost){ .messages = (uint64_t)(P - 1), .bytes = bytes_of(c, n - block_length(c, P, r)),
                                     .additions = (uint64_t)(n - block_length(c, P, r - 1)),
                                     .steps = (uint64_t)(P - 1) };
}

const struct algorithm reduce_scatter_ring = {
    .operation = REDUCE_SCATTER, .name = "ring", .description = "each block once round the ring to its owner",
    .order = BY_POSITION, .source = "Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002",
    .cost_formula = "(P-1) a + n(P-1)/P b", .run = run, .cost = cost, .turns = turns_with_equal_blocks,
};
