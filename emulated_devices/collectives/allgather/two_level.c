/* allgather, two levels: between nodes among devices with the same place, then inside the node.
 *
 * Source    the hierarchical collectives of ZeRO++: G. Wang et al., "ZeRO++: extremely efficient collective
 *           communication for giant model training", arXiv:2306.10209
 * Needs     equally many consecutive ranks on every node; on one node or none, q is the largest divisor of P not above
 *           its root (1 for primes); any counts.
 * Cost      steps  (P/q - 1) between nodes, (q-1) inside
 *           bytes  (P/q - 1)|b(r)| between nodes, (q-1) times the blocks with its place inside
 * Memory    the blocks of two places, packed.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 6, q = 2:    between  0 -b0-> 2, 4     2 -b2-> 0, 4 ..            each block crosses to a node once
 *                  inside   0 -{b0 b2 b4}-> 1    0 <-{b1 b3 b5}- 1      and so in the other nodes
 */
#include "emulated_devices/collectives/algorithm.h"

/* Blocks of all devices with the same place in their nodes. */
static struct comb of_place(int place, struct row node, struct row nodes)
{
    return (struct comb){ place, node.size, nodes.size };
}

/* out [blocks of this place] = the blocks of devices with this place in all nodes. */
static enum error_code two_level_between(struct exchange *exchange, const struct collective *collective,
                                         struct row nodes, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    enum error_code code = OK;
    for (int step = 1; step < nodes.size && code == OK; step++) {
        /* Own blocks go to the devices with the same place in the other nodes. */
        const int from = row_member(nodes, nodes.me - step);
        code = exchange_both(exchange, row_member(nodes, nodes.me + step), block(collective, collective->out, P, r),
                             bytes_of(collective, block_length(collective, P, r)), from,
                             block(collective, collective->out, P, from),
                             bytes_of(collective, block_length(collective, P, from)), err);
    }
    return code;
}

/* out [all blocks]: each member of the node gives the blocks of its place, packed in one message. */
static enum error_code two_level_inside(struct exchange *exchange, const struct collective *collective, struct row node,
                                        struct row nodes, void *out, void *in, struct error *err)
{
    const int P = exchange->group->size;
    const struct comb mine = of_place(node.me, node, nodes);
    enum error_code code = OK;
    comb_pack(exchange, collective, mine, out, collective->out);
    for (int step = 1; step < node.size && code == OK; step++) {
        /* Then each place's blocks of all nodes go to the members of the node, packed. */
        const int from = imod(node.me - step, node.size);
        const struct comb theirs = of_place(from, node, nodes);
        code = exchange_both(exchange, row_member(node, node.me + step), out,
                             bytes_of(collective, comb_length(collective, P, mine)),
                             row_member(node, from), in, bytes_of(collective, comb_length(collective, P, theirs)), err);
        if (code == OK) comb_unpack(exchange, collective, theirs, collective->out, in);
    }
    return code;
}

/* The longest place decides the scratch: two messages may be of different lengths. */
static enum error_code allgather_two_level_run(struct group *group, const struct collective *collective,
                                               struct error *err)
{
    const int P = group->size, r = group->rank;
    const struct row node = row_in_node(collective, r, P), nodes = row_of_nodes(collective, r, P);
    int64_t most = 0;
    for (int i = 0; i < node.size; i++) {
        const int64_t n = comb_length(collective, P, of_place(i, node, nodes));
        if (n > most) most = n;
    }
    struct exchange x = exchange_begin(group, ALLGATHER);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, 2 * most, &scratch, err);
    if (code == OK) copy_elements(&x, collective, block(collective, collective->out, P, r), collective->in,
                                  block_length(collective, P, r));
    if (code == OK) code = two_level_between(&x, collective, nodes, err);
    if (code == OK) code = two_level_inside(&x, collective, node, nodes, scratch,
                                            element(collective, scratch, most), err);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost two_level_cost(int r, int P, const struct collective *collective)
{
    const struct row node = row_in_node(collective, r, P), nodes = row_of_nodes(collective, r, P);
    struct collective_cost cost = { .steps = (uint64_t)(node.size - 1 + nodes.size - 1),
                                    .steps_inside = (uint64_t)(node.size - 1) };
    for (int i = 1; i < nodes.size; i++) cost_send(&cost, collective, block_length(collective, P, r));
    const uint64_t between_bytes = cost.bytes;
    for (int i = 1; i < node.size; i++)
        cost_send(&cost, collective, comb_length(collective, P, of_place(node.me, node, nodes)));
    /* Long ways come first, with one block each, then short ones, with as many blocks as there are nodes. */
    cost.path = cost.bytes;
    cost.path_inside = cost.bytes - between_bytes;
    return cost;
}

const struct algorithm allgather_two_level = {
    .operation = ALLGATHER, .name = "two_level", .description = "between nodes first, then inside them",
    .source = "ZeRO++, Wang et al. 2023, arXiv:2306.10209", .cost_formula = "(P/q-1 + q-1) a + n(P-1)/P b",
        .vectors = 2, .run = allgather_two_level_run,
    .cost = two_level_cost,
    .needs = EVEN_NODES_NEEDED, .refuses = needs_even_nodes, .by_nodes = true,
};
