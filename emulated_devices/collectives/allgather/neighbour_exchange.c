/* allgather, neighbour exchange: pairs of blocks are exchanged with the left and the right neighbour alternately.
 *
 * Source    J. Chen, L. Zhang, Y. Zhang, W. Yuan, "Performance evaluation of allgather algorithms on terascale Linux
 *           cluster with fast Ethernet", HPC Asia 2005; in Open MPI's coll_base_allgather.c
 * Needs     P even; any counts.
 * Idea      first the devices of a pair (2j, 2j+1) exchange their blocks.  Then every device sends the pair of blocks
 *           that it received last to its other neighbour, and receives one: half the steps of the ring, only to
 *           neighbours.
 * Cost      steps  P/2;  bytes  |b(r)| and then P/2 - 1 pairs of blocks
 * Memory    none: blocks 2p and 2p+1 lie side by side.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 6, device 2, of pair 1:   b2 <-> 3      pair 1 <-> pair 0 with 1      pair 0 <-> pair 2 with 3
 */
#include "emulated_devices/collectives/algorithm.h"

static const char *neighbour_exchange_refuses(int P, const struct collective *collective)
{
    (void)collective;
    return P % 2 == 0 ? NULL : "P even";
}

/* The pair a device receives in step i >= 1; in step 0 it completes its own. */
static int pair_in(int r, int i, int P)
{
    const int own = r / 2, away = (i + 1) / 2, side = (r % 2 == 0) == (i % 2 == 1) ? -1 : 1;
    return imod(own + side * away, P / 2);
}

static struct comb pair(int p) { return (struct comb){ 2 * p, 1, 2 }; }

/* out [all blocks] = every member's block.  Pairs of blocks are contiguous, so nothing is packed. */
static enum error_code neighbour_exchange_run(struct group *group, const struct collective *collective,
                                              struct error *err)
{
    const int P = group->size, r = group->rank, buddy = r ^ 1;
    struct exchange x = exchange_begin(group, ALLGATHER);
    copy_elements(&x, collective, block(collective, collective->out, P, r), collective->in,
                  block_length(collective, P, r));
    enum error_code code = exchange_both(&x, buddy, block(collective, collective->out, P, r),
                                         bytes_of(collective, block_length(collective, P, r)), buddy,
                                         block(collective, collective->out, P, buddy),
                                         bytes_of(collective, block_length(collective, P, buddy)), err);
    /* From here on blocks travel in pairs: 2p and 2p + 1. */
    int give = r / 2;
    for (int i = 1; i < P / 2 && code == OK; i++) {
        /* Even devices talk to the left in odd steps, to the right in even ones; odd devices do the reverse. */
        const int peer = imod((r % 2 == 0) == (i % 2 == 1) ? r - 1 : r + 1, P), take = pair_in(r, i, P);
        code = exchange_both(&x, peer, block(collective, collective->out, P, 2 * give),
                             bytes_of(collective, comb_length(collective, P, pair(give))),
                             peer, block(collective, collective->out, P, 2 * take),
                             bytes_of(collective, comb_length(collective, P, pair(take))), err);
        /* A pair that has just arrived goes on to the other neighbour. */
        give = take;
    }
    return code;
}

static struct collective_cost neighbour_exchange_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)(P / 2) };
    cost_send(&cost, collective, block_length(collective, P, r));
    for (int i = 1; i < P / 2; i++)
        cost_send(&cost, collective, comb_length(collective, P, pair(i == 1 ? r / 2 : pair_in(r, i - 1, P))));
    return cost;
}

const struct algorithm allgather_neighbour_exchange = {
    .operation = ALLGATHER, .name = "neighbour_exchange",
    .description = "pairs of blocks to the left and right neighbour in turn",
    .source = "Chen et al. 2005; Open MPI coll_base_allgather.c", .cost_formula = "P/2 a + n(P-1)/P b",
    .needs = "P even", .refuses = neighbour_exchange_refuses, .run = neighbour_exchange_run,
        .cost = neighbour_exchange_cost,
};
