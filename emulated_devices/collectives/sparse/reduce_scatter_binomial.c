/* sparse-reduce-scatter, binomial: every block up a binomial tree over its holders; for blocks with many targets.
 *
 * Source    the reduction of MPI libraries, R. Thakur et al., doi:10.1177/1094342005051521, one for each block
 * Needs     any P, any placement, any counts.
 * Cost      messages  the blocks of which a device is a target;  bytes  their lengths
 *           depth     log2(T+1), rounded up, for T targets;  adds  one length for each child in a block's tree
 * Memory    sums of blocks that a device passes on; the longest block that comes to it; the list of messages.
 * Rounding  in the order of the tree, which depends on the owner; every element of a block alike.
 *
 *     a block of member 0 for 1 2 3 4:    1 -> 0    3 -> 2      2 -> 0      4 -> 0
 */
#include "emulated_devices/collectives/sparse.h"

/* Add the children's values, the nearest first, to those in `into`. */
static enum error_code add_children(struct exchange *x, const struct collective *c, const struct holders *h,
                                    int64_t length, void *into, void *other, struct error *err)
{
    int child[HOLDER_CHILDREN];
    for (int i = holder_children(h->me, h->count, child); i-- > 0; ) {
        const enum error_code code =
            exchange_both(x, -1, NULL, 0, h->member[child[i]], other, bytes_of(c, length), err);
        if (code != OK) return code;
        reduce_local(x, c->reduction, c->dtype, into, other, length);
    }
    return OK;
}

/* What this member gets and sends: the longest block of children; the elements of blocks that it adds for others; and
 * how many it sends. */
struct amount { int64_t longest, passed; int sends; };

static struct amount amount_of(const struct collective *c, int P, int member)
{
    struct holders h;
    int child[HOLDER_CHILDREN];
    struct amount a = { 0 };
    for (struct sparse_walk w = { .b = -1 }; sparse_next(c, P, member, &w); ) {
        if (!w.holds || w.length == 0) continue;
        sparse_holders(c, P, member, &w, &h);
        const bool adds = holder_children(h.me, h.count, child) > 0;
        if (adds && w.length > a.longest) a.longest = w.length;
        if (adds && !w.owns) a.passed += w.length;
        a.sends += !w.owns;
    }
    return a;
}

/* By levels, the farthest from the owner first.  Sums for others stay in scratch until they are sent. */
static enum error_code add_all(struct exchange *x, const struct collective *c, char *sum, void *other,
                               struct message *sent, struct error *err)
{
    const struct own_blocks own = sparse_own_blocks(x, c);
    struct holders h;
    int child[HOLDER_CHILDREN];
    enum error_code code = OK;
    for (int level = (int)sparse_depth(c, x->group->size); level >= 0; level--)
        for (struct sparse_walk w = { .b = -1 }; !code && sparse_next(c, x->group->size, x->group->rank, &w); ) {
            if (!sparse_part(x, c, &w, level, &h)) continue;
            const bool adds = holder_children(h.me, h.count, child) > 0;
            const void *in = const_element(c, c->in, w.held_at);
            void *into = w.owns ? element(c, c->out, sparse_own_at(own, &w)) : sum;
            if (adds && !w.owns) copy_elements(x, c, into, in, w.length), sum += bytes_of(c, w.length);
            if (adds) code = add_children(x, c, &h, w.length, into, other, err);
            if (!w.owns) *sent++ = message_send(x, h.member[holder_parent(h.me)], adds ? into : in,
                                                bytes_of(c, w.length));
        }
    return code;
}

static void finish_own(struct exchange *x, const struct collective *c)
{
    const struct own_blocks own = sparse_own_blocks(x, c);
    for (struct sparse_walk w = { .b = -1 }; sparse_next(c, x->group->size, x->group->rank, &w); )
        if (w.owns) reduce_finish(x, c->reduction, c->dtype, element(c, c->out, sparse_own_at(own, &w)), w.length);
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    struct exchange x = exchange_begin(g, SPARSE_REDUCE_SCATTER);
    const struct amount a = amount_of(c, g->size, g->rank);
    void *scratch;
    enum error_code code = scratch_agreed(&x, c, a.passed + a.longest, &scratch, err);
    if (code != OK) return code;
    struct message *m = message_list(&x, a.sends);
    sparse_copy_own(&x, c);
    code = add_all(&x, c, scratch, element(c, scratch, a.passed), m, err);
    const enum error_code last = wait_all(&x, m, code ? 0 : a.sends, code ? NULL : err);
    finish_own(&x, c);
    exchange_small_end(&x, m);
    exchange_release(&x, scratch);
    return code ? code : last;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .depth = sparse_depth(c, P) };
    struct holders h;
    int child[HOLDER_CHILDREN];
    for (struct sparse_walk w = { .b = -1 }; sparse_next(c, P, r, &w); ) {
        if (!w.holds || w.length == 0) continue;
        sparse_holders(c, P, r, &w, &h);
        cost.additions += (uint64_t)(holder_children(h.me, h.count, child) * w.length);
        if (!w.owns) cost_send(&cost, c, w.length);
    }
    cost.path = bytes_of(c, (int64_t)cost.additions);
    if (cost.bytes > cost.path) cost.path = cost.bytes;
    return cost;
}

const struct algorithm sparse_reduce_scatter_binomial = {
    .operation = SPARSE_REDUCE_SCATTER, .name = "binomial",
    .description = "every block up a binomial tree over its targets and owner", .order = BY_POSITION,
    .source = "Thakur, Rabenseifner, Gropp, doi:10.1177/1094342005051521",
    .cost_formula = "log(T+1) (a + n b) for a block with T targets", .run = run, .cost = cost,
};
