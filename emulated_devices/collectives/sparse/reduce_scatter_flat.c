/* sparse-reduce-scatter, flat: every target sends its values of a block to the owner, which adds.
 *
 * Source    NCCL's grouped reductions of Hecate (fully sharded sparse data parallelism), arXiv:2502.02581
 * Needs     any P, any placement, any counts.
 * Cost      messages  the blocks of which a device is a target;  bytes  their lengths
 *           adds      of each own block its length for each target
 * Memory    two of the longest own block; the list of messages.
 * Rounding  in the order of ranks, whoever is the owner: if a block changes its owner, the bits of its sum do not.
 *
 *     blocks  a of member 0 for 1 2 3    b of member 2 for 0         1 -a-> 0   2 -a-> 0   3 -a-> 0   0 -b-> 2
 */
#include "emulated_devices/collectives/sparse.h"

static int send_all(struct exchange *x, const struct collective *c, struct message *m)
{
    int n = 0;
    for (struct sparse_walk w = { .b = -1 }; sparse_next(c, x->group->size, x->group->rank, &w); ) {
        if (w.owns || !w.holds || w.length == 0) continue;
        if (m) m[n] = message_send(x, w.owner, const_element(c, c->in, w.held_at), bytes_of(c, w.length));
        n++;
    }
    return n;
}

static int64_t longest_to_add(const struct collective *c, int P, int member)
{
    int64_t longest = 0;
    for (struct sparse_walk w = { .b = -1 }; sparse_next(c, P, member, &w); )
        for (int m = 0; m < P && w.owns; m++)
            if (m != member && w.length > longest && sparse_holds(c, P, w.b, m)) longest = w.length;
    return longest;
}

/* The values of holder m of an own block: in `into`, or added to it. */
static enum error_code take(struct exchange *x, const struct collective *c, const struct sparse_walk *w, int m,
                            bool first, void *into, void *other, struct error *err)
{
    const void *own = const_element(c, c->in, w->held_at);
    void *place = first ? into : other;
    enum error_code code = OK;
    if (m == w->owner && first) copy_elements(x, c, into, own, w->length);
    if (m != w->owner) code = exchange_both(x, -1, NULL, 0, m, place, bytes_of(c, w->length), err);
    if (!first && !code) reduce_local(x, c->reduction, c->dtype, into, m == w->owner ? own : other, w->length);
    return code;
}

/* Own blocks in their order; of each the holders in the order of ranks. */
static enum error_code add_all(struct exchange *x, const struct collective *c, void *sum, void *other,
                               struct error *err)
{
    const int P = x->group->size, me = x->group->rank;
    const struct own_blocks own = sparse_own_blocks(x, c);
    enum error_code code = OK;
    for (struct sparse_walk w = { .b = -1 }; sparse_next(c, P, me, &w) && !code; ) {
        if (!w.owns || w.length == 0) continue;
        int holders = 0, added = 0;
        for (int m = 0; m < P; m++) holders += sparse_holds(c, P, w.b, m);
        void *out = element(c, c->out, sparse_own_at(own, &w));
        for (int m = 0; m < P && holders > 1 && !code; m++)
            if (sparse_holds(c, P, w.b, m)) code = take(x, c, &w, m, added++ == 0, sum, other, err);
        if (holders > 1) copy_elements(x, c, out, sum, w.length);
        reduce_finish(x, c->reduction, c->dtype, out, w.length);
    }
    return code;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    struct exchange x = exchange_begin(g, SPARSE_REDUCE_SCATTER);
    const int64_t longest = longest_to_add(c, g->size, g->rank);
    void *scratch;
    enum error_code code = scratch_agreed(&x, c, 2 * longest, &scratch, err);
    if (code != OK) return code;
    const int sends = send_all(&x, c, NULL);
    struct message *m = message_list(&x, sends);
    send_all(&x, c, m);
    sparse_copy_own(&x, c);
    code = add_all(&x, c, scratch, element(c, scratch, longest), err);
    const enum error_code last = wait_all(&x, m, sends, code ? NULL : err);
    exchange_small_end(&x, m);
    exchange_release(&x, scratch);
    return code ? code : last;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .depth = 1 };
    for (struct sparse_walk w = { .b = -1 }; sparse_next(c, P, r, &w); ) {
        if (w.holds && !w.owns && w.length > 0) cost_send(&cost, c, w.length);
        for (int m = 0; m < P && w.owns; m++)
            if (m != r && sparse_holds(c, P, w.b, m)) cost.additions += (uint64_t)w.length;
    }
    cost.path = bytes_of(c, (int64_t)cost.additions);
    if (cost.bytes > cost.path) cost.path = cost.bytes;
    return cost;
}

const struct algorithm sparse_reduce_scatter_flat = {
    .operation = SPARSE_REDUCE_SCATTER, .name = "flat",
    .description = "every target sends its values of a block to the owner, which adds", .order = BY_RANK,
    .source = "Hecate, arXiv:2502.02581", .cost_formula = "a + (sum over own blocks of targets x length) b",
    .run = run, .cost = cost,
};
