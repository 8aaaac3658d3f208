/* sparse-allgather, binomial: every block down a binomial tree over its holders; for blocks with many targets.
 *
 * Source    the broadcast of MPI libraries, R. Thakur et al., doi:10.1177/1094342005051521, one for each block
 * Needs     any P, any placement, any counts.
 * Cost      messages  one for each child in each block's tree;  bytes  the same in all as flat, spread over holders
 *           depth     log2(T+1), rounded up, for T targets
 * Memory    the list of messages.
 * Rounding  permutes: bits are equal.
 *
 *     a block of member 0 for 1 2 3 4:    0 -> 4      0 -> 2      0 -> 1    2 -> 3
 */
#include "emulated_devices/collectives/sparse.h"

/* Receive blocks by levels, each in their order.  With m NULL count them, and what will be sent. */
static int receive_all(struct exchange *x, const struct collective *c, struct message *m, int *sends)
{
    struct holders h;
    int n = 0, child[HOLDER_CHILDREN];
    *sends = 0;
    for (uint64_t level = 0; level <= sparse_depth(c, x->group->size); level++)
        for (struct sparse_walk w = { .b = -1 }; sparse_next(c, x->group->size, x->group->rank, &w); ) {
            if (!sparse_part(x, c, &w, (int)level, &h)) continue;
            *sends += holder_children(h.me, h.count, child);
            if (h.me == 0) continue;
            if (m) m[n] = message_receive(x, h.member[holder_parent(h.me)], element(c, c->out, w.held_at),
                                          bytes_of(c, w.length));
            n++;
        }
    return n;
}

/* Send them on in the same order, when they have come. */
static enum error_code pass_on(struct exchange *x, const struct collective *c, const struct message *came,
                               struct message *sent, struct error *err)
{
    struct holders h;
    int child[HOLDER_CHILDREN];
    enum error_code code = OK;
    for (uint64_t level = 0; level <= sparse_depth(c, x->group->size); level++)
        for (struct sparse_walk w = { .b = -1 }; sparse_next(c, x->group->size, x->group->rank, &w); ) {
            if (!sparse_part(x, c, &w, (int)level, &h)) continue;
            const enum error_code one = h.me > 0 ? message_wait(x->group->comm, *came++, code ? NULL : err) : OK;
            if (!code) code = one;
            for (int i = 0, n = holder_children(h.me, h.count, child); i < n; i++)
                *sent++ = message_send(x, h.member[child[i]], element(c, c->out, w.held_at), bytes_of(c, w.length));
        }
    return code;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    struct exchange x = exchange_begin(g, SPARSE_ALLGATHER);
    int sends;
    const int received = receive_all(&x, c, NULL, &sends);
    struct message *m = message_list(&x, received + sends);
    sparse_copy_own(&x, c);
    receive_all(&x, c, m, &sends);
    enum error_code code = pass_on(&x, c, m, m + received, err);
    const enum error_code last = wait_all(&x, m + received, sends, code ? NULL : err);
    exchange_small_end(&x, m);
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
        for (int n = holder_children(h.me, h.count, child); n > 0; n--) cost_send(&cost, c, w.length);
        if (h.me > 0) cost.path += bytes_of(c, w.length);
    }
    if (cost.bytes > cost.path) cost.path = cost.bytes;
    return cost;
}

const struct algorithm sparse_allgather_binomial = {
    .operation = SPARSE_ALLGATHER, .name = "binomial",
    .description = "every block down a binomial tree over its owner and targets",
    .source = "Thakur, Rabenseifner, Gropp, doi:10.1177/1094342005051521",
    .cost_formula = "log(T+1) (a + n b) for a block with T targets", .run = run, .cost = cost,
};
