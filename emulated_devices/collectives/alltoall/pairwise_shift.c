/* alltoall, pairwise, by shifts: in a step with shift k, device r sends to r+k and receives from r-k.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any counts.
 * Cost      steps  P-1;  bytes  all but the own block: n(P-1)/P, each element once
 * Memory    none; in place one block, the longest.
 * In place  a shift by k overwrites the block that the shift by P-k sends.  So these two shifts follow each other, and
 *           that block is saved in between.
 * Rounding  permutes: bits are equal.
 *
 * P = 5     step 1: r -> r+1      step 2: r -> r-1      step 3: r -> r+2      step 4: r -> r-2      (mod P)
 *           no device receives from two at once
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code step(struct exchange *x, const struct collective *c, int to, const void *block, int from,
                            struct error *err)
{
    return exchange_both(x, to, block, bytes_of(c, given_to(c, to)), from, algorithm_taken(c, from),
                         bytes_of(c, taken_from(c, from)), err);
}

/* The shifts by k and by P-k; only one step if they are equal. */
static enum error_code there_and_back(struct exchange *x, const struct collective *c, int k, void *keep,
                                      struct error *err)
{
    const int P = x->group->size, r = x->group->rank, ahead = imod(r + k, P), behind = imod(r - k, P);
    /* The first step overwrites the block for `behind` where the call is in place: it is kept aside. */
    const void *for_behind = algorithm_kept(x, c, behind, keep);
    if (ahead == behind) return step(x, c, behind, for_behind, behind, err);
    const enum error_code code = step(x, c, ahead, algorithm_given(c, ahead), behind, err);
    return code == OK ? step(x, c, behind, for_behind, ahead, err) : code;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    struct exchange x = exchange_begin(g, ALLTOALL);
    void *keep;
    enum error_code code = scratch_agreed(&x, c, longest_to_keep(c, g->rank, g->size), &keep, err);
    if (code != OK) return code;
    keep_own(&x, c);
    for (int k = 1; k <= g->size / 2 && code == OK; k++) code = there_and_back(&x, c, k, keep, err);
    exchange_release(&x, keep);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1) };
    for (int d = 0; d < P; d++) if (d != r) cost_send(&cost, c, given_to(c, d));
    return cost;
}

const struct algorithm alltoall_pairwise_shift = {
    .operation = ALLTOALL, .name = "pairwise_shift",
    .description = "to the device k further on, for every k in turn: no port is used twice",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(P-1) a + n(P-1)/P b", .run = run, .cost = cost,
    .turns = turns_with_equal_counts,
};
