/* sparse-allgather, flat: every owner sends its blocks to each of their targets, all at once.
 *
 * Source    NCCL's grouped broadcasts of Hecate (fully sharded sparse data parallelism), arXiv:2502.02581
 * Needs     any P, any placement, any counts.
 * Cost      messages  the targets of own blocks;  bytes  of each own block its length for each target
 *           steps     1 where a device can send to all at once; the most messages of a device through one port
 * Memory    the list of messages.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     blocks  a of member 0 for 1 2 3    b of member 2 for 0         0 -a-> 1   0 -a-> 2   0 -a-> 3   2 -b-> 0
 */
#include "emulated_devices/collectives/sparse.h"

/* Call once with m = NULL to count.  Two members' messages go in the order of blocks, at both. */
static int receive_all(struct exchange *exchange, const struct collective *collective, struct message *message)
{
    const int P = exchange->group->size;
    int n = 0;
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, exchange->group->rank, &w); ) {
        if (w.owns || !w.holds || w.length == 0) continue;
        if (message) message[n] = message_receive(exchange, w.owner, element(collective, collective->out, w.held_at),
                                                  bytes_of(collective, w.length));
        n++;
    }
    return n;
}

/* Send each own block to all its targets.  With message NULL the messages are only counted. */
static int send_all(struct exchange *exchange, const struct collective *collective, struct message *message)
{
    const int P = exchange->group->size, me = exchange->group->rank;
    int n = 0;
    for (int k = 1; k < P; k++)
        for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, me, &w); ) {
            /* Every member begins with the next one, so they do not all send to the same. */
            const int to = imod(me + k, P);
            if (!w.owns || w.length == 0 || !sparse_holds(collective, P, w.b, to)) continue;
            if (message) message[n] = message_send(exchange, to, element(collective, collective->out, w.held_at),
                                                   bytes_of(collective, w.length));
            n++;
        }
    return n;
}

static enum error_code allgather_flat_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, SPARSE_ALLGATHER);
    const int number = receive_all(&x, collective, NULL) + send_all(&x, collective, NULL);
    struct message *m = message_list(&x, number);
    sparse_copy_own(&x, collective);
    const int received = receive_all(&x, collective, m);
    send_all(&x, collective, m + received);
    const enum error_code code = wait_all(&x, m, number, err);
    exchange_small_end(&x, m);
    return code;
}

static struct collective_cost allgather_flat_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .depth = 1 };
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, r, &w); ) {
        if (w.holds && !w.owns) cost.path += bytes_of(collective, w.length);
        for (int m = 0; m < P && w.owns && w.length > 0; m++)
            if (m != r && sparse_holds(collective, P, w.b, m)) cost_send(&cost, collective, w.length);
    }
    if (cost.bytes > cost.path) cost.path = cost.bytes;
    return cost;
}

const struct algorithm sparse_allgather_flat = {
    .operation = SPARSE_ALLGATHER, .name = "flat", .description = "every block from its owner to each of its targets",
    .source = "Hecate, arXiv:2502.02581", .cost_formula = "a + (sum over own blocks of targets x length) b",
    .run = allgather_flat_run, .cost = allgather_flat_cost,
};
