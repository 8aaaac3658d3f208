/* reduce-scatter, recursive halving: in every step send half of the remaining blocks to a partner and add the others.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P (for other P members are folded: one device then works for two blocks), any counts.
 * Cost      steps  log2 P; 2 more if P is not a power of two
 *           bytes  n - |b(r)| for a power of two;  adds  the kept half in every step
 * Memory    the vector and half of it again (twice with folding): the input is only read.
 * Rounding  block b is added in the order of the tree.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 4:     0       1       2       3
 *   by 2     b0 b1   b0 b1   b2 b3   b2 b3
 *   by 1     b0      b1      b2      b3
 */
#include "emulated_devices/collectives/algorithm.h"

/* The call as one on the whole vector, for functions without blocks. */
static struct collective halving_whole(const struct collective *collective, int P)
{
    struct collective v = *collective;
    v.count = block_total(collective, P);
    return v;
}

/* A device that works for two sends the other its finished block. */
static enum error_code halving_give_back(struct exchange *exchange, const struct collective *collective,
                                         struct fold fold, void *work, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    if (fold.me < 0) return exchange_both(exchange, -1, NULL, 0, r + 1, collective->out,
                                          bytes_of(collective, block_length(collective, P, r)), err);
    copy_elements(exchange, collective, collective->out, block(collective, work, P, r), block_length(collective, P, r));
    if (fold.me >= fold.rest) return OK;
    return exchange_both(exchange, r - 1, block(collective, work, P, r - 1),
                         bytes_of(collective, block_length(collective, P, r - 1)), -1, NULL, 0, err);
}

/* out [block r] = sum over members of in's block r.  Sums grow in `work`, a copy of the input. */
static enum error_code halving_run(struct group *group, const struct collective *collective, struct error *err)
{
    const struct collective v = halving_whole(collective, group->size);
    const struct cut k = { .P = group->size, .f = fold_of(group->rank, group->size) };
    const int64_t room = k.f.rest > 0 ? v.count : halving_scratch(&v, k);
    struct exchange x = exchange_begin(group, REDUCE_SCATTER);
    void *work;
    enum error_code code = scratch_agreed(&x, collective, v.count + room, &work, err);
    if (code != OK) return code;

    /* The input stays as it is: sums grow in a copy. */
    copy_elements(&x, collective, work, collective->in, v.count);
    /* P is no power of two: some devices work for two, and give back the other's block at the end. */
    code = fold_in(&x, &v, k.f, work, element(collective, work, v.count), err);
    if (k.f.me >= 0 && code == OK) {
        code = halving_reduce_scatter(&x, &v, k, work, element(collective, work, v.count), err);
        const int64_t first = cut_edge(&v, k, k.f.me);
        if (code == OK)
            reduce_finish(&x, collective->reduction, collective->dtype, element(collective, work, first),
                          cut_edge(&v, k, k.f.me + 1) - first);
    }
    if (code == OK) code = halving_give_back(&x, collective, k.f, work, err);
    exchange_release(&x, work);
    return code;
}

/* The fold sends a whole vector in and only a block back, so fold_cost does not serve here. */
static struct collective_cost reduce_scatter_halving_cost(int r, int P, const struct collective *collective)
{
    const struct collective v = halving_whole(collective, P);
    const struct cut k = { .P = P, .f = fold_of(r, P) };
    struct collective_cost cost = { .steps = k.f.rest > 0 ? 2 : 0 };
    if (k.f.me < 0) cost_send(&cost, collective, v.count);
    else if (k.f.me < k.f.rest) {
        cost_send(&cost, collective, block_length(collective, P, r - 1));
        cost.additions += (uint64_t)v.count;
    }
    halving_cost(&cost, &v, k, true);
    fold_path(&cost, collective, k.f, v.count);
    return cost;
}

const struct algorithm reduce_scatter_halving = {
    .operation = REDUCE_SCATTER, .name = "halving", .description = "give half away, half as far each time: few steps",
    .order = BY_TREE, .vectors = 2, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "log2 P a + n(P-1)/P b", .run = halving_run, .cost = reduce_scatter_halving_cost,
};
