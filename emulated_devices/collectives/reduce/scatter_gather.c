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
 *
 * P = 4, root 0:     0: a      1: b      2: c      3: d       after halving, as in allreduce/rabenseifner.c
 *                    1 -b-> 0      2 -c-> 0      3 -d-> 0
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code collect_pieces(struct exchange *x, const struct collective *c, struct cut k, void *work,
                               struct error *err)
{
    const bool root = x->group->rank == c->root;
    enum error_code code = OK;
    for (int i = 0; i < k.f.core && code == OK; i++) {
        const int64_t first = cut_edge(c, k, i), n = cut_edge(c, k, i + 1) - first;
        const int member = fold_member(k.f, i);
        if (root && i == k.f.me) copy_elements(x, c, element(c, c->out, first), element(c, work, first), n);
        else if (root) code = exchange_both(x, -1, NULL, 0, member, element(c, c->out, first), bytes_of(c, n), err);
        else if (i == k.f.me)
            code = exchange_both(x, c->root, element(c, work, first), bytes_of(c, n), -1, NULL, 0, err);
    }
    if (root && code == OK) reduce_finish(x, c->reduction, c->dtype, c->out, c->count);
    return code;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const struct cut k = { .f = fold_of(g->rank, g->size) };
    struct exchange x = exchange_begin(g, REDUCE);
    void *work;
    enum error_code code =
        scratch_agreed(&x, c, c->count + (k.f.rest > 0 ? c->count : halving_scratch(c, k)), &work, err);
    if (code != OK) return code;
    copy_elements(&x, c, work, c->in, c->count);
    code = fold_in(&x, c, k.f, work, element(c, work, c->count), err);
    if (code == OK && k.f.me >= 0) code = halving_reduce_scatter(&x, c, k, work, element(c, work, c->count), err);
    if (code == OK) code = collect_pieces(&x, c, k, work, err);
    exchange_release(&x, work);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const struct cut k = { .f = fold_of(r, P) };
    struct collective_cost cost = { .steps = (uint64_t)(k.f.core - 1 + (k.f.rest > 0 ? 2 : 0)),
                                    .depth = (uint64_t)(ceil_log2(k.f.core) + 1 + (k.f.rest > 0)) };
    if (k.f.me < 0) cost_send(&cost, c, c->count);
    else if (k.f.me < k.f.rest) cost.additions += (uint64_t)c->count;
    halving_cost(&cost, c, k, true);
    if (k.f.me >= 0 && r != c->root) cost_send(&cost, c, cut_edge(c, k, k.f.me + 1) - cut_edge(c, k, k.f.me));
    fold_path(&cost, c, k.f, c->count);
    const int64_t others = c->count - part_length(c->count, k.f.core, 0);
    /* the root receives the parts; a root outside the core also waits for the halving */
    if (r == c->root) cost.path += bytes_of(c, k.f.me >= 0 ? others : others + c->count);
    return cost;
}

const struct algorithm reduce_scatter_gather = {
    .operation = REDUCE, .name = "scatter_gather",
    .description = "halving, then every part to the root: for long vectors",
    .order = BY_TREE, .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(log2 P + P-1) a + 2n(P-1)/P b", .run = run, .cost = cost,
};
