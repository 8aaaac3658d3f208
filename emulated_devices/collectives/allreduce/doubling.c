/* allreduce, recursive doubling: in every step each device gets the sum over twice as many devices.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P (for other P members are folded, algorithm.h), any count.
 * Cost      steps  log2 P; for other P log2 of the power of two below, and 2
 *           bytes  n in each step: best for short vectors
 *           adds   n in each step
 * Memory    n elements of scratch.
 * Rounding  both devices of a pair compute (lower op higher), in that order: the same bits on all devices.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 4:    0     1     2     3
 *           0+1 = 0+1   2+3 = 2+3        exchange with the device 1 away
 *           0123  0123  0123  0123       exchange with the device 2 away
 */
#include "emulated_devices/collectives/algorithm.h"

/* out [count] = sum over members.  `mine` and `theirs` change places instead of being copied. */
static enum error_code allreduce_doubling_run(struct group *group, const struct collective *collective,
                                              struct error *err)
{
    const struct fold f = fold_of(group->rank, group->size);
    const uint64_t bytes = bytes_of(collective, collective->count);
    struct exchange x = exchange_begin(group, ALLREDUCE);
    void *scratch, *mine = collective->out;
    enum error_code code = scratch_agreed(&x, collective, f.me < 0 ? 0 : collective->count, &scratch, err);

    void *theirs = scratch;
    /* P is no power of two: the first devices in pairs add up to one of them. */
    if (code == OK) code = fold_in(&x, collective, f, mine, theirs, err);
    for (int distance = 1; distance < f.core && f.me >= 0 && code == OK; distance *= 2) {
        /* Both devices of a pair send their sums, and add the same two numbers in the same order. */
        const int peer = f.me ^ distance;
        code = exchange_both(&x, fold_member(f, peer), mine, bytes, fold_member(f, peer), theirs, bytes, err);
        if (code != OK) break;
        if (peer < f.me) {                          /* the lower device's numbers are the left operand */
            void *swap = mine;
            mine = theirs;
            theirs = swap;
        }
        reduce_local(&x, collective->reduction, collective->dtype, mine, theirs, collective->count);
    }
    if (code == OK) {
        copy_elements(&x, collective, collective->out, mine, collective->count);
        if (f.me >= 0) reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
        code = fold_out(&x, collective, f, collective->out, err);
    }
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost doubling_cost(int r, int P, const struct collective *collective)
{
    const struct fold f = fold_of(r, P);
    struct collective_cost cost = { 0 };
    fold_cost(&cost, collective, f, collective->count);
    for (int distance = 1; distance < f.core; distance *= 2) {
        cost.steps++;
        if (f.me < 0) continue;
        cost_send(&cost, collective, collective->count);
        cost.additions += (uint64_t)collective->count;
    }
    fold_path(&cost, collective, f, collective->count);
    return cost;
}

const struct algorithm allreduce_doubling = {
    .operation = ALLREDUCE, .name = "doubling",
    .description = "exchange sums at distance 1, 2, 4, ..: the fewest steps",
    .order = BY_TREE, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "log2 P (a + n b)", .run = allreduce_doubling_run, .cost = doubling_cost,
};
