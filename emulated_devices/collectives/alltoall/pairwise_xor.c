/* alltoall, pairwise, by exclusive or: in step k the devices r and r xor k exchange.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     P a power of two; any counts.
 * Cost      steps  P-1;  bytes  all but the own block: n(P-1)/P, each element once
 * Memory    none; in place one block, the longest: a copy of the block to send, while the received one overwrites it.
 * Rounding  permutes: bits are equal.
 *
 *     P = 4:   step 1: 0-1 2-3      step 2: 0-2 1-3      step 3: 0-3 1-2
 */
#include "emulated_devices/collectives/algorithm.h"

static const char *refuses(int P, const struct collective *c)
{
    (void)c;
    return (P & (P - 1)) == 0 ? NULL : "P a power of two";
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    struct exchange x = exchange_begin(g, ALLTOALL);
    void *keep;
    enum error_code code = scratch_agreed(&x, c, longest_to_keep(c, r, P), &keep, err);
    if (code != OK) return code;
    keep_own(&x, c);
    for (int step = 1; step < P && code == OK; step++) {
        /* The pairs of a step are disjoint: everybody has one partner. */
        const int peer = r ^ step;
        code = exchange_both(&x, peer, algorithm_kept(&x, c, peer, keep), bytes_of(c, given_to(c, peer)),
                             peer, algorithm_taken(c, peer), bytes_of(c, taken_from(c, peer)), err);
    }
    exchange_release(&x, keep);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1) };
    for (int d = 0; d < P; d++) if (d != r) cost_send(&cost, c, given_to(c, d));
    return cost;
}

const struct algorithm alltoall_pairwise_xor = {
    .operation = ALLTOALL, .name = "pairwise_xor",
    .description = "in step k devices r and r xor k exchange: both ways of one link",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(P-1) a + n(P-1)/P b", .needs = "P a power of two", .refuses = refuses, .run = run, .cost = cost,
};
