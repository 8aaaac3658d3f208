/* allreduce, ring: partial sums travel once round the ring, then the finished sums do.
 *
 * Source    P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 *           J. Parallel Distrib. Comput. 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002
 * Needs     any P, any count; blocks may be empty (then so are their messages).
 * Idea      cut the vector into P blocks b0 .. b(P-1).  In every step each device sends one block to its right
 *           neighbour and receives another from its left, so all links are always busy.
 *           Reduce-scatter: after P-1 steps device r has the finished block r+1.  Allgather: P-1 more steps pass it on.
 * Cost      steps  2(P-1)
 *           bytes  2n - |b(r+1)| - |b(r+2)|  elements: about 2n(P-1)/P, the minimum
 *           adds   n - |b(r)|                          about  n(P-1)/P
 * Memory    one scratch block, ceil(n/P) elements.
 * Rounding  block b is added in the order of devices b, b+1, .., b-1: computed once, so all devices have the same
 *           bits.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 3, a column for each block; device r starts with r0 r1 r2.  02+22: the partial sum of those two;  *: finished.
 *
 *            device 0           device 1           device 2            every device r sends
 *   start    00  01  02         10  11  12         20  21  22
 *   step 1   00  01  02+22      10+00  11  12      20  21+11  22       b(r)    to r+1, which adds it
 *   step 2   00  *   02+22      10+00  11  *       *   21+11  22       b(r-1)  to r+1, which adds it
 *   step 3   *   *   02+22      10+00  *   *       *   21+11  *        b(r+1)  to r+1, which keeps it
 *   step 4   *   *   *          *   *   *          *   *   *           b(r)    to r+1, which keeps it
 */
#include "emulated_devices/collectives/algorithm.h"

/* out [count] = sum over members.  Both phases have P - 1 steps with the same pattern of blocks. */
static enum error_code allreduce_ring_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank, right = imod(r + 1, P), left = imod(r - 1, P);
    struct exchange x = exchange_begin(group, ALLREDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, part_length(collective->count, P, 0), &scratch, err);

    for (int phase = 0; phase < 2; phase++)                     /* 0: reduce-scatter, 1: allgather */
        for (int step = 0; step < P - 1 && code == OK; step++) {
            /* Phase 0 ends with block r + 1 complete here, with which phase 1 begins. */
            const int give = imod(r + phase - step, P), take = imod(give - 1, P);
            const int64_t giving = part_length(collective->count, P, give),
                taking = part_length(collective->count, P, take);
            void *mine = element(collective, collective->out, block_start(collective->count, P, take));
            const void *given = element(collective, collective->out, block_start(collective->count, P, give));
            /* Received sums are added to the own block; in phase 1 complete blocks are only stored. */
            code = phase == 0
                       ? send_and_add(&x, collective, right, given, giving, left, scratch, mine, taking, err)
                       : exchange_both(&x, right, given, bytes_of(collective, giving), left, mine,
                                       bytes_of(collective, taking), err);
            if (phase == 0 && code == OK && step == P - 2)
                reduce_finish(&x, collective->reduction, collective->dtype, mine, taking);
        }
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost allreduce_ring_cost(int r, int P, const struct collective *collective)
{
    return (struct collective_cost){
        .messages = 2 * (uint64_t)(P - 1),
        .bytes = bytes_of(collective, 2 * collective->count - part_length(collective->count, P, r + 1)
                          - part_length(collective->count, P, r + 2)),
        .additions = (uint64_t)(collective->count - part_length(collective->count, P, r)),
        .steps = 2 * (uint64_t)(P - 1),
    };
}

const struct algorithm allreduce_ring = {
    .operation = ALLREDUCE, .name = "ring", .description = "round the ring twice: the fewest bytes, many steps",
    .order = BY_POSITION, .source = "Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002",
    .cost_formula = "2(P-1) a + 2n(P-1)/P b", .run = allreduce_ring_run, .cost = allreduce_ring_cost,
        .turns = turns_with_equal_parts,
};
