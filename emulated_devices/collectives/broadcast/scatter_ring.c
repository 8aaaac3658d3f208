/* broadcast, scatter and ring: the root scatters parts, then a ring gathers them on all devices.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521 (long messages, any P)
 * Needs     any P, any count, any root.
 * Cost      steps  ceil(log2 P) + P-1
 *           bytes  about 2n(P-1)/P at the root, for any P; a binomial tree sends n ceil(log2 P)
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 4, parts a b c d, root 0:   scatter  0 -cd-> 2   0 -b-> 1   2 -d-> 3
 *                                 ring     part v from the v-th after the root, P-1 times to the right
 */
#include "emulated_devices/collectives/algorithm.h"

/* Every device has its part; after P - 1 steps to the right every device has all parts. */
static enum error_code ring(struct exchange *exchange, const struct collective *collective, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank, v = imod(r - collective->root, P);
    enum error_code code = OK;
    for (int step = 0; step < P - 1 && code == OK; step++) {
        /* Parts are numbered from the root on; the part of the step before goes to the right. */
        const int give = imod(v - step, P), take = imod(give - 1, P);
        code = exchange_both(exchange, imod(r + 1, P),
                             element(collective, collective->out, block_start(collective->count, P, give)),
                             bytes_of(collective, part_length(collective->count, P, give)), imod(r - 1, P),
                             element(collective, collective->out, block_start(collective->count, P, take)),
                             bytes_of(collective, part_length(collective->count, P, take)), err);
    }
    return code;
}

static enum error_code scatter_ring_run(struct group *group, const struct collective *collective, struct error *err)
{
    const struct parts p = { group->size, collective->root, false };
    struct exchange x = exchange_begin(group, BROADCAST);
    void *mine = element(collective, collective->out,
                         part_edge(collective, p, imod(group->rank - collective->root, group->size)));
    const enum error_code code = binomial_scatter(&x, collective, p, mine, err);
    return code == OK ? ring(&x, collective, err) : code;
}

static struct collective_cost scatter_ring_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .messages = (uint64_t)(P - 1), .steps = (uint64_t)(P - 1),
                                    .bytes = bytes_of(collective, collective->count
                                                      - part_length(collective->count, P, r - collective->root + 1)) };
    binomial_parts_cost(&cost, collective, (struct parts){ P, collective->root, false }, r, true);
    return cost;
}

const struct algorithm broadcast_scatter_ring = {
    .operation = BROADCAST, .name = "scatter_ring",
    .description = "deal out parts, then pass them round: long vectors, any P",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(ceil(log2 P) + P-1) a + 2n(P-1)/P b", .run = scatter_ring_run, .cost = scatter_ring_cost,
};
