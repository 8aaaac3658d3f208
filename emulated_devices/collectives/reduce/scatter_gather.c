/* reduce, scatter and gather: recursive halving leaves each device one finished part, which it sends to the root.
 *
 * Source    Rabenseifner's, in R. Thakur, R. Rabenseifner, W. Gropp, doi:10.1177/1094342005051521; here the
 *           parts go to the root directly instead of up a tree
 * Needs     any P (for other P members are folded), any count, any root.
 * Cost      steps  log2 P + P-1 at the root's port; 1 more if P is not a power of two
 *           bytes  about n at each device and n(P-1)/P into the root, where a tree has n log2 P there
 *           adds   about n(P-1)/P
 * Memory    the vector (the input is only read), and half of it; twice with folding.
 * Rounding  each part is added in one place, in the order of the tree.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 4, root 0:     0: a      1: b      2: c      3: d       after halving, as in allreduce/rabenseifner.c
 *                    1 -b-> 0      2 -c-> 0      3 -d-> 0
 */
#include "emulated_devices/collectives/algorithm.h"

/* The root receives the finished parts in their order; each core member sends its own. */
static enum error_code scatter_gather_collect_pieces(struct exchange *exchange, const struct collective *collective,
                                                     struct cut cut, void *work,
                               struct error *err)
{
    const bool root = exchange->group->rank == collective->root;
    enum error_code code = OK;
    for (int i = 0; i < cut.f.core && code == OK; i++) {
        const int64_t first = cut_edge(collective, cut, i), n = cut_edge(collective, cut, i + 1) - first;
        const int member = fold_member(cut.f, i);
        if (root && i == cut.f.me) copy_elements(exchange, collective, element(collective, collective->out, first),
                                                 element(collective, work, first), n);
        else if (root) code = exchange_both(exchange, -1, NULL, 0, member, element(collective, collective->out, first),
                                            bytes_of(collective, n), err);
        else if (i == cut.f.me)
            code = exchange_both(exchange, collective->root, element(collective, work, first), bytes_of(collective, n),
                                 -1, NULL, 0, err);
    }
    if (root && code == OK)
        reduce_finish(exchange, collective->reduction, collective->dtype, collective->out, collective->count);
    return code;
}

/* out [count] of the root = sum over members.  Sums grow in `work`, a copy of the input. */
static enum error_code scatter_gather_run(struct group *group, const struct collective *collective, struct error *err)
{
    const struct cut k = { .f = fold_of(group->rank, group->size) };
    struct exchange x = exchange_begin(group, REDUCE);
    void *work;
    enum error_code code =
        scratch_agreed(&x, collective, collective->count
                       + (k.f.rest > 0 ? collective->count : halving_scratch(collective, k)), &work, err);
    if (code != OK) return code;
    copy_elements(&x, collective, work, collective->in, collective->count);
    code = fold_in(&x, collective, k.f, work, element(collective, work, collective->count), err);
    if (code == OK && k.f.me >= 0)
        code = halving_reduce_scatter(&x, collective, k, work, element(collective, work, collective->count), err);
    if (code == OK) code = scatter_gather_collect_pieces(&x, collective, k, work, err);
    exchange_release(&x, work);
    return code;
}

static struct collective_cost scatter_gather_cost(int r, int P, const struct collective *collective)
{
    const struct cut k = { .f = fold_of(r, P) };
    struct collective_cost cost = { .steps = (uint64_t)(k.f.core - 1 + (k.f.rest > 0 ? 2 : 0)),
                                    .depth = (uint64_t)(ceil_log2(k.f.core) + 1 + (k.f.rest > 0)) };
    if (k.f.me < 0) cost_send(&cost, collective, collective->count);
    else if (k.f.me < k.f.rest) cost.additions += (uint64_t)collective->count;
    halving_cost(&cost, collective, k, true);
    if (k.f.me >= 0 && r != collective->root)
        cost_send(&cost, collective, cut_edge(collective, k, k.f.me + 1) - cut_edge(collective, k, k.f.me));
    fold_path(&cost, collective, k.f, collective->count);
    const int64_t others = collective->count - part_length(collective->count, k.f.core, 0);
    /* The root receives the parts; a root outside the core also waits for the halving. */
    if (r == collective->root) cost.path += bytes_of(collective, k.f.me >= 0 ? others : others + collective->count);
    return cost;
}

const struct algorithm reduce_scatter_gather = {
    .operation = REDUCE, .name = "scatter_gather",
    .description = "halving, then every part to the root: for long vectors",
    .order = BY_TREE, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(log2 P + P-1) a + 2n(P-1)/P b", .vectors = 2,
    .run = scatter_gather_run, .cost = scatter_gather_cost,
};
