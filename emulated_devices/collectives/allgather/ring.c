/* allgather, ring: every block goes once round the ring.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any counts.
 * Cost      steps  P-1;  bytes  n - |b(r+1)|: the minimum if blocks are equal
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 3:   step 1: device r sends b(r) to r+1;  step 2: b(r-1), which it has just received
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code ring_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, ALLGATHER);
    enum error_code code = OK;
    copy_elements(&x, collective, block(collective, collective->out, P, r), collective->in,
                  block_length(collective, P, r));
    for (int step = 0; step < P - 1 && code == OK; step++) {
        /* The block that arrived in the step before goes on to the right. */
        const int give = imod(r - step, P), take = imod(give - 1, P);
        code = exchange_both(&x, imod(r + 1, P), block(collective, collective->out, P, give),
                             bytes_of(collective, block_length(collective, P, give)),
                             imod(r - 1, P), block(collective, collective->out, P, take),
                             bytes_of(collective, block_length(collective, P, take)), err);
    }
    return code;
}

static struct collective_cost allgather_ring_cost(int r, int P, const struct collective *collective)
{
    return (struct collective_cost){ .messages = (uint64_t)(P - 1), .steps = (uint64_t)(P - 1),
                                     .bytes = bytes_of(collective, block_total(collective, P)
                                                       - block_length(collective, P, r + 1)) };
}

const struct algorithm allgather_ring = {
    .operation = ALLGATHER, .name = "ring", .description = "every block once round the ring",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(P-1) a + n(P-1)/P b", .run = ring_run, .cost = allgather_ring_cost,
        .turns = turns_with_equal_blocks,
};
