/* allreduce, Rabenseifner's: recursive halving scatters the sums, recursive doubling collects them.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P (for other P members are folded), any count.
 * Cost      steps  2 log2 P; 2 more if P is not a power of two
 *           bytes  2n(P-1)/P for a power of two: as few as the ring, in fewer steps
 *           adds   n(P-1)/P
 * Memory    ceil(n/2) elements of scratch; n with folding.
 * Rounding  each part is summed on one device and copied: the same bits on all devices.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 4, parts a b c d:    0         1         2         3
 *   distance 2            ab--      ab--      --cd      --cd       each sends half of its vector
 *   distance 1            a---      -b--      --c-      ---d       and half of that
 *   distance 1            ab--      ab--      --cd      --cd       and back
 *   distance 2            abcd      abcd      abcd      abcd
 */
#include "emulated_devices/collectives/algorithm.h"

/* out [count] = sum over members: each core member sums a part, then all parts come together. */
static enum error_code rabenseifner_run(struct group *group, const struct collective *collective, struct error *err)
{
    const struct cut k = { .f = fold_of(group->rank, group->size) };
    const int64_t room = k.f.rest > 0 ? collective->count : halving_scratch(collective, k);
    struct exchange x = exchange_begin(group, ALLREDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, k.f.me < 0 ? 0 : room, &scratch, err);

    if (code == OK) code = fold_in(&x, collective, k.f, collective->out, scratch, err);
    if (code == OK && k.f.me >= 0) {
        /* Halving leaves the sum of one part on each device; doubling brings all parts together again. */
        code = halving_reduce_scatter(&x, collective, k, collective->out, scratch, err);
        const int64_t first = cut_edge(collective, k, k.f.me);
        if (code == OK)
            reduce_finish(&x, collective->reduction, collective->dtype, element(collective, collective->out, first),
                          cut_edge(collective, k, k.f.me + 1) - first);
        if (code == OK) code = doubling_allgather(&x, collective, k, collective->out, err);
    }
    if (code == OK) code = fold_out(&x, collective, k.f, collective->out, err);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost rabenseifner_cost(int r, int P, const struct collective *collective)
{
    const struct cut k = { .f = fold_of(r, P) };
    struct collective_cost cost = { 0 };
    fold_cost(&cost, collective, k.f, collective->count);
    halving_cost(&cost, collective, k, true);
    halving_cost(&cost, collective, k, false);
    fold_path(&cost, collective, k.f, collective->count);
    return cost;
}

const struct algorithm allreduce_rabenseifner = {
    .operation = ALLREDUCE, .name = "rabenseifner", .description = "halving, then doubling: few bytes in few steps",
    .order = BY_TREE, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "2 log2 P a + 2n(P-1)/P b", .run = rabenseifner_run, .cost = rabenseifner_cost,
};
