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
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5     step 1: r -> r+1      step 2: r -> r-1      step 3: r -> r+2      step 4: r -> r-2      (mod P)
 *           no device receives from two at once
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code pairwise_shift_step(struct exchange *exchange, const struct collective *collective, int to,
                                           const void *block, int from, struct error *err)
{
    return exchange_both(exchange, to, block, bytes_of(collective, given_to(collective, to)), from,
                         algorithm_taken(collective, from), bytes_of(collective, taken_from(collective, from)), err);
}

/* The shifts by k and by P-k; only one step if they are equal. */
static enum error_code there_and_back(struct exchange *exchange, const struct collective *collective, int k, void *keep,
                                      struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank, ahead = imod(r + k, P), behind = imod(r - k, P);
    /* The first step overwrites the block for `behind` where the call is in place: it is kept aside. */
    const void *for_behind = algorithm_kept(exchange, collective, behind, keep);
    if (ahead == behind) return pairwise_shift_step(exchange, collective, behind, for_behind, behind, err);
    const enum error_code code = pairwise_shift_step(exchange, collective, ahead, algorithm_given(collective, ahead),
                                                     behind, err);
    return code == OK ? pairwise_shift_step(exchange, collective, behind, for_behind, ahead, err) : code;
}

static enum error_code pairwise_shift_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, ALLTOALL);
    void *keep;
    enum error_code code = scratch_agreed(&x, collective,
                                          longest_to_keep(collective, group->rank, group->size), &keep, err);
    if (code != OK) return code;
    keep_own(&x, collective);
    for (int k = 1; k <= group->size / 2 && code == OK; k++) code = there_and_back(&x, collective, k, keep, err);
    exchange_release(&x, keep);
    return code;
}

static struct collective_cost pairwise_shift_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1) };
    for (int d = 0; d < P; d++) if (d != r) cost_send(&cost, collective, given_to(collective, d));
    return cost;
}

const struct algorithm alltoall_pairwise_shift = {
    .operation = ALLTOALL, .name = "pairwise_shift",
    .description = "to the device k further on, for every k in turn: no port is used twice",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(P-1) a + n(P-1)/P b", .run = pairwise_shift_run, .cost = pairwise_shift_cost,
    .turns = turns_with_equal_counts,
};
