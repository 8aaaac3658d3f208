/* allreduce, bidirectional ring: two rings at once, half of the vector to the right and half to the left.
 *
 * Source    the ring of allreduce/ring.c twice; used where links carry both directions at once, as on TPU tori:
 *           N. Jouppi et al., "A domain-specific supercomputer for training deep neural networks", CACM 63(7), 2020,
 *           doi:10.1145/3360307
 * Needs     any P, any count.
 * Cost      steps  4(P-1) messages through one port; with a port to each side 2(P-1) steps of half the length
 *           bytes  as the ring, for each half
 *           adds   as the ring, for each half
 * Memory    two scratch blocks of ceil(n/2P) elements.
 * Rounding  each block is added once round the ring, by one device at a time: the same bits on all devices.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     0 --> 1 --> 2 --> 3 --> 0      first half
 *     0 <-- 1 <-- 2 <-- 3 <-- 0      second half
 */
#include "emulated_devices/collectives/algorithm.h"

/* One direction: its half of the vector, and the numbering of members in its order. */
struct way { char *data, *scratch; int64_t n; int me, to, from; };

static struct way way_of(const struct collective *collective, int which, int r, int P)
{
    const int64_t start = block_start(collective->count, 2, which);
    return (struct way){ .data = element(collective, collective->out, start),
                        .n = block_start(collective->count, 2, which + 1) - start,
                         .me = which == 0 ? r : P - 1 - r,            /* to the left: reversed numbering */
                         .to = imod(which == 0 ? r + 1 : r - 1, P), .from = imod(which == 0 ? r - 1 : r + 1, P) };
}

/* The block that this direction sends in a step, of 2(P-1); it receives the block before. */
static int block_given(const struct way *way, int step, int P)
{
    return imod(step < P - 1 ? way->me - step : way->me + 1 - (step - (P - 1)), P);
}

/* A step of both directions: two receives and two sends are under way at once. */
static enum error_code both_ways(struct exchange *exchange, const struct collective *collective,
                                 const struct way way[2], int step, struct error *err)
{
    const int P = exchange->group->size;
    struct message m[4];
    for (int i = 0; i < 2; i++) {
        /* Reduce-scatter receives into scratch, to add; all-gather at the block's place. */
        const int give = block_given(&way[i], step, P), take = imod(give - 1, P);
        void *in = step < P - 1 ? way[i].scratch : element(collective, way[i].data, block_start(way[i].n, P, take));
        m[2 * i] = message_receive(exchange, way[i].from, in, bytes_of(collective, part_length(way[i].n, P, take)));
    }
    for (int i = 0; i < 2; i++) {
        /* Both directions send in the same step, each over a link of its own. */
        const int give = block_given(&way[i], step, P);
        m[2 * i + 1] = message_send(exchange, way[i].to,
                                    element(collective, way[i].data, block_start(way[i].n, P, give)),
                                    bytes_of(collective, part_length(way[i].n, P, give)));
    }
    return wait_all(exchange, m, 4, err);
}

/* out [count] = sum over members; each half of the vector goes round in its direction. */
static enum error_code bidirectional_ring_run(struct group *group, const struct collective *collective,
                                              struct error *err)
{
    const int P = group->size;
    struct exchange x = exchange_begin(group, ALLREDUCE);
    struct way w[2] = { way_of(collective, 0, group->rank, P), way_of(collective, 1, group->rank, P) };
    /* The second half has the odd element, so its blocks may be the longer ones. */
    const int64_t longest = part_length(w[1].n, P, 0);
    const int64_t room = part_length(w[0].n, P, 0) > longest ? part_length(w[0].n, P, 0) : longest;
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, 2 * room, &scratch, err);

    for (int i = 0; i < 2; i++) w[i].scratch = element(collective, scratch, i * room);
    for (int step = 0; step < 2 * (P - 1) && code == OK; step++) {
        code = both_ways(&x, collective, w, step, err);
        for (int i = 0; i < 2 && code == OK && step < P - 1; i++) {
            /* The received part is added to the own numbers of that block; the last step completes a block. */
            const int take = imod(block_given(&w[i], step, P) - 1, P);
            void *mine = element(collective, w[i].data, block_start(w[i].n, P, take));
            reduce_local(&x, collective->reduction, collective->dtype, mine, w[i].scratch,
                         part_length(w[i].n, P, take));
            if (step == P - 2) reduce_finish(&x, collective->reduction, collective->dtype, mine,
                                             part_length(w[i].n, P, take));
        }
    }
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost bidirectional_ring_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .messages = 4 * (uint64_t)(P - 1),
                                    .steps = 4 * (uint64_t)(P - 1),
                                    .depth = 2 * (uint64_t)(P - 1) };
    for (int i = 0; i < 2; i++) {
        const int64_t n = block_start(collective->count, 2, i + 1) - block_start(collective->count, 2, i);
        const int me = i == 0 ? r : P - 1 - r;
        cost.bytes += bytes_of(collective, 2 * n - part_length(n, P, me + 1) - part_length(n, P, me + 2));
        cost.additions += (uint64_t)(n - part_length(n, P, me));
    }
    return cost;
}

const struct algorithm allreduce_bidirectional_ring = {
    .operation = ALLREDUCE, .name = "bidirectional_ring",
    .description = "two rings in opposite directions, half of the vector each",
    .order = BY_POSITION, .source = "Jouppi et al. 2020, doi:10.1145/3360307",
    .cost_formula = "4(P-1) a + 2n(P-1)/P b", .run = bidirectional_ring_run, .cost = bidirectional_ring_cost,
};
