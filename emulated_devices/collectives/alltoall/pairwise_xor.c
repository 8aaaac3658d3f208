/* alltoall, pairwise, by exclusive or: in step k the devices r and r xor k exchange.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     P a power of two; any counts.
 * Cost      steps  P-1;  bytes  all but the own block: n(P-1)/P, each element once
 * Memory    none; in place one block, the longest: a copy of the block to send, while the received one overwrites it.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     P = 4:   step 1: 0-1 2-3      step 2: 0-2 1-3      step 3: 0-3 1-2
 */
#include "emulated_devices/collectives/algorithm.h"

static const char *pairwise_xor_refuses(int P, const struct collective *collective)
{
    (void)collective;
    return (P & (P - 1)) == 0 ? NULL : "P a power of two";
}

static enum error_code pairwise_xor_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, ALLTOALL);
    void *keep;
    enum error_code code = scratch_agreed(&x, collective, longest_to_keep(collective, r, P), &keep, err);
    if (code != OK) return code;
    keep_own(&x, collective);
    for (int step = 1; step < P && code == OK; step++) {
        /* The pairs of a step are disjoint: everybody has one partner. */
        const int peer = r ^ step;
        code = exchange_both(&x, peer, algorithm_kept(&x, collective, peer, keep),
                             bytes_of(collective, given_to(collective, peer)), peer, algorithm_taken(collective, peer),
                             bytes_of(collective, taken_from(collective, peer)), err);
    }
    exchange_release(&x, keep);
    return code;
}

static struct collective_cost pairwise_xor_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1) };
    for (int d = 0; d < P; d++) if (d != r) cost_send(&cost, collective, given_to(collective, d));
    return cost;
}

const struct algorithm alltoall_pairwise_xor = {
    .operation = ALLTOALL, .name = "pairwise_xor",
    .description = "in step k devices r and r xor k exchange: both ways of one link",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(P-1) a + n(P-1)/P b", .needs = "P a power of two", .refuses = pairwise_xor_refuses,
        .run = pairwise_xor_run, .cost = pairwise_xor_cost,
};
