/* sparse-allgather, binomial: every block down a binomial tree over its holders; for blocks with many targets.
 *
 * Source    the broadcast of MPI libraries, R. Thakur et al., doi:10.1177/1094342005051521, one for each block
 * Needs     any P, any placement, any counts.
 * Cost      messages  one for each child in each block's tree;  bytes  the same in all as flat, spread over holders
 *           depth     log2(T+1), rounded up, for T targets
 * Memory    the list of messages.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     a block of member 0 for 1 2 3 4:    0 -> 4      0 -> 2      0 -> 1    2 -> 3
 */
#include "emulated_devices/collectives/sparse.h"

/* Receive blocks by levels, each in their order.  With m NULL count them, and what will be sent. */
static int receive_all(struct exchange *exchange, const struct collective *collective,
                       struct message *message, int *sends)
{
    struct holders h;
    int n = 0, child[HOLDER_CHILDREN];
    *sends = 0;
    for (uint64_t level = 0; level <= sparse_depth(collective, exchange->group->size); level++)
        for (struct sparse_walk w = { .b = -1 };
             sparse_next(collective, exchange->group->size, exchange->group->rank, &w); ) {
            if (!sparse_part(exchange, collective, &w, (int)level, &h)) continue;
            *sends += holder_children(h.me, h.count, child);
            if (h.me == 0) continue;
            if (message) message[n] = message_receive(exchange, h.member[holder_parent(h.me)],
                                                      element(collective, collective->out, w.held_at),
                                                      bytes_of(collective, w.length));
            n++;
        }
    return n;
}

/* Send them on in the same order, when they have come. */
static enum error_code allgather_binomial_pass_on(struct exchange *exchange, const struct collective *collective,
                                                  const struct message *came, struct message *sent, struct error *err)
{
    struct holders h;
    int child[HOLDER_CHILDREN];
    enum error_code code = OK;
    for (uint64_t level = 0; level <= sparse_depth(collective, exchange->group->size); level++)
        for (struct sparse_walk w = { .b = -1 };
             sparse_next(collective, exchange->group->size, exchange->group->rank, &w); ) {
            if (!sparse_part(exchange, collective, &w, (int)level, &h)) continue;
            const enum error_code one = h.me > 0 ? message_wait(exchange->group->comm, *came++, code ? NULL : err) : OK;
            if (!code) code = one;
            for (int i = 0, n = holder_children(h.me, h.count, child); i < n; i++)
                *sent++ = message_send(exchange, h.member[child[i]], element(collective, collective->out, w.held_at),
                                       bytes_of(collective, w.length));
        }
    return code;
}

static enum error_code allgather_binomial_run(struct group *group, const struct collective *collective,
                                              struct error *err)
{
    struct exchange x = exchange_begin(group, SPARSE_ALLGATHER);
    int sends;
    const int received = receive_all(&x, collective, NULL, &sends);
    struct message *m = message_list(&x, received + sends);
    sparse_copy_own(&x, collective);
    receive_all(&x, collective, m, &sends);
    enum error_code code = allgather_binomial_pass_on(&x, collective, m, m + received, err);
    const enum error_code last = wait_all(&x, m + received, sends, code ? NULL : err);
    exchange_small_end(&x, m);
    return code ? code : last;
}

static struct collective_cost allgather_binomial_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .depth = sparse_depth(collective, P) };
    struct holders h;
    int child[HOLDER_CHILDREN];
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, r, &w); ) {
        if (!w.holds || w.length == 0) continue;
        sparse_holders(collective, P, r, &w, &h);
        for (int n = holder_children(h.me, h.count, child); n > 0; n--) cost_send(&cost, collective, w.length);
        if (h.me > 0) cost.path += bytes_of(collective, w.length);
    }
    if (cost.bytes > cost.path) cost.path = cost.bytes;
    return cost;
}

const struct algorithm sparse_allgather_binomial = {
    .operation = SPARSE_ALLGATHER, .name = "binomial",
    .description = "every block down a binomial tree over its owner and targets",
    .source = "Thakur, Rabenseifner, Gropp, doi:10.1177/1094342005051521",
    .cost_formula = "log(T+1) (a + n b) for a block with T targets", .run = allgather_binomial_run,
        .cost = allgather_binomial_cost,
};
