/* sparse-reduce-scatter, binomial: every block up a binomial tree over its holders; for blocks with many targets.
 *
 * Source    the reduction of MPI libraries, R. Thakur et al., doi:10.1177/1094342005051521, one for each block
 * Needs     any P, any placement, any counts.
 * Cost      messages  the blocks of which a device is a target;  bytes  their lengths
 *           depth     log2(T+1), rounded up, for T targets;  adds  one length for each child in a block's tree
 * Memory    sums of blocks that a device passes on; the longest block that comes to it; the list of messages.
 * Rounding  in the order of the tree, which depends on the owner; every element of a block alike.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     a block of member 0 for 1 2 3 4:    1 -> 0    3 -> 2      2 -> 0      4 -> 0
 */
#include "emulated_devices/collectives/sparse.h"

/* Add the children's values, the nearest first, to those in `into`. */
static enum error_code add_children(struct exchange *exchange, const struct collective *collective,
                                    const struct holders *holders,
                                    int64_t length, void *into, void *other, struct error *err)
{
    int child[HOLDER_CHILDREN];
    for (int i = holder_children(holders->me, holders->count, child); i-- > 0; ) {
        const enum error_code code =
            exchange_both(exchange, -1, NULL, 0, holders->member[child[i]], other, bytes_of(collective, length), err);
        if (code != OK) return code;
        reduce_local(exchange, collective->reduction, collective->dtype, into, other, length);
    }
    return OK;
}

/* A member needs room for the longest block of its children and for all blocks that it adds for others.  The last
 * number counts its sends. */
struct amount { int64_t longest, passed; int sends; };

/* The amounts decide scratch and the length of the list of messages before anything is sent. */
static struct amount amount_of(const struct collective *collective, int P, int member)
{
    struct holders h;
    int child[HOLDER_CHILDREN];
    struct amount a = { 0 };
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, member, &w); ) {
        if (!w.holds || w.length == 0) continue;
        sparse_holders(collective, P, member, &w, &h);
        const bool adds = holder_children(h.me, h.count, child) > 0;
        if (adds && w.length > a.longest) a.longest = w.length;
        if (adds && !w.owns) a.passed += w.length;
        a.sends += !w.owns;
    }
    return a;
}

/* By levels, the farthest from the owner first.  Sums for others stay in scratch until they are sent. */
static enum error_code add_all(struct exchange *exchange, const struct collective *collective, char *sum, void *other,
                               struct message *sent, struct error *err)
{
    const struct own_blocks own = sparse_own_blocks(exchange, collective);
    struct holders h;
    int child[HOLDER_CHILDREN];
    enum error_code code = OK;
    for (int level = (int)sparse_depth(collective, exchange->group->size); level >= 0; level--)
        for (struct sparse_walk w = { .b = -1 }; !code
             && sparse_next(collective, exchange->group->size, exchange->group->rank, &w); ) {
            if (!sparse_part(exchange, collective, &w, level, &h)) continue;
            const bool adds = holder_children(h.me, h.count, child) > 0;
            const void *in = const_element(collective, collective->in, w.held_at);
            void *into = w.owns ? element(collective, collective->out, sparse_own_at(own, &w)) : sum;
            if (adds && !w.owns) copy_elements(exchange, collective, into, in, w.length),
                sum += bytes_of(collective, w.length);
            if (adds) code = add_children(exchange, collective, &h, w.length, into, other, err);
            if (!w.owns) *sent++ = message_send(exchange, h.member[holder_parent(h.me)], adds ? into : in,
                                                bytes_of(collective, w.length));
        }
    return code;
}

static void finish_own(struct exchange *exchange, const struct collective *collective)
{
    const struct own_blocks own = sparse_own_blocks(exchange, collective);
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, exchange->group->size, exchange->group->rank, &w);
         )
        if (w.owns) reduce_finish(exchange, collective->reduction, collective->dtype,
                                  element(collective, collective->out, sparse_own_at(own, &w)), w.length);
}

/* out [own blocks] = sums over holders.  Sums for others stay in scratch until their messages have ended. */
static enum error_code reduce_scatter_binomial_run(struct group *group, const struct collective *collective,
                                                   struct error *err)
{
    struct exchange x = exchange_begin(group, SPARSE_REDUCE_SCATTER);
    const struct amount a = amount_of(collective, group->size, group->rank);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, a.passed + a.longest, &scratch, err);
    if (code != OK) return code;
    struct message *m = message_list(&x, a.sends);
    sparse_copy_own(&x, collective);
    code = add_all(&x, collective, scratch, element(collective, scratch, a.passed), m, err);
    const enum error_code last = wait_all(&x, m, code ? 0 : a.sends, code ? NULL : err);
    finish_own(&x, collective);
    exchange_small_end(&x, m);
    exchange_release(&x, scratch);
    return code ? code : last;
}

static struct collective_cost reduce_scatter_binomial_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .depth = sparse_depth(collective, P) };
    struct holders h;
    int child[HOLDER_CHILDREN];
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, r, &w); ) {
        if (!w.holds || w.length == 0) continue;
        sparse_holders(collective, P, r, &w, &h);
        cost.additions += (uint64_t)(holder_children(h.me, h.count, child) * w.length);
        if (!w.owns) cost_send(&cost, collective, w.length);
    }
    cost.path = bytes_of(collective, (int64_t)cost.additions);
    if (cost.bytes > cost.path) cost.path = cost.bytes;
    return cost;
}

const struct algorithm sparse_reduce_scatter_binomial = {
    .operation = SPARSE_REDUCE_SCATTER, .name = "binomial",
    .description = "every block up a binomial tree over its targets and owner", .order = BY_POSITION,
    .source = "Thakur, Rabenseifner, Gropp, doi:10.1177/1094342005051521",
    .cost_formula = "log(T+1) (a + n b) for a block with T targets", .run = reduce_scatter_binomial_run,
        .cost = reduce_scatter_binomial_cost,
};
