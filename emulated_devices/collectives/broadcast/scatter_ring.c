/* broadcast, scatter and ring: the root scatters parts, then a ring gathers them on all devices.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521 (long messages, any P)
 * Needs     any P, any count, any root.
 * Cost      steps  ceil(log2 P) + P-1
 *           bytes  about 2n(P-1)/P at the root, for any P; a binomial tree sends n ceil(log2 P)
 * Memory    none.
 * Rounding  permutes: bits are equal.
 *
 * P = 4, parts a b c d, root 0:   scatter  0 -cd-> 2   0 -b-> 1   2 -d-> 3
 *                                 ring     part v from the v-th after the root, P-1 times to the right
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code ring(struct exchange *x, const struct collective *c, struct error *err)
{
    const int P = x->group->size, r = x->group->rank, v = imod(r - c->root, P);
    enum error_code code = OK;
    for (int step = 0; step < P - 1 && code == OK; step++) {
        /* Parts are numbered from the root on; the part of the step before goes to the right. */
        const int give = imod(v - step, P), take = imod(give - 1, P);
        code = exchange_both(x, imod(r + 1, P), element(c, c->out, block_start(c->count, P, give)),
                             bytes_of(c, part_length(c->count, P, give)), imod(r - 1, P),
                             element(c, c->out, block_start(c->count, P, take)),
                             bytes_of(c, part_length(c->count, P, take)), err);
    }
    return code;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const struct parts p = { g->size, c->root, false };
    struct exchange x = exchange_begin(g, BROADCAST);
    void *mine = element(c, c->out, part_edge(c, p, imod(g->rank - c->root, g->size)));
    const enum error_code code = binomial_scatter(&x, c, p, mine, err);
    return code == OK ? ring(&x, c, err) : code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .messages = (uint64_t)(P - 1), .steps = (uint64_t)(P - 1),
                                    .bytes = bytes_of(c, c->count - part_length(c->count, P, r - c->root + 1)) };
    binomial_parts_cost(&cost, c, (struct parts){ P, c->root, false }, r, true);
    return cost;
}

const struct algorithm broadcast_scatter_ring = {
    .operation = BROADCAST, .name = "scatter_ring",
    .description = "deal out parts, then pass them round: long vectors, any P",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(ceil(log2 P) + P-1) a + 2n(P-1)/P b", .run = run, .cost = cost,
};
