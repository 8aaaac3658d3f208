/* reduce-scatter, two levels: add inside each node first, so that each node sends a block to other nodes only once.
 *
 * Source    the hierarchical collectives of ZeRO++: G. Wang et al., "ZeRO++: extremely efficient collective
 *           communication for giant model training", arXiv:2306.10209
 * Needs     equally many consecutive ranks on every node; on one node or none, q is the largest divisor of P not above
 *           its root (1 for primes); any counts.
 * Idea      device l of a node collects, from its node, the blocks of all devices with place l; then those exchange
 *           them between nodes.
 * Cost      steps  (q-1) inside, (P/q - 1) between nodes
 *           bytes  inside n minus the blocks with its place; between nodes these minus |b(r)|; together n - |b(r)|
 *           adds   (q-1) times the blocks with its place, (P/q - 1)|b(r)|
 * Memory    twice the blocks with its place.
 * Rounding  first inside the node, then over nodes.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 6, q = 2:    inside   0 -{b1 b3 b5}-> 1    0 <-{b0 b2 b4}- 1     and so in the other nodes
 *                  between  0 -b2-> 2   0 -b4-> 4   2 -b0-> 0 ..       (the sums)
 */
#include "emulated_devices/collectives/algorithm.h"

/* Blocks of all devices with the same place in their nodes. */
static struct comb of_place(int place, struct row node, struct row nodes)
{
    return (struct comb){ place, node.size, nodes.size };
}

static int64_t longest_place(const struct collective *collective, int P, struct row node, struct row nodes,
                             int64_t *total)
{
    int64_t most = 0;
    *total = comb_length(collective, P, of_place(node.me, node, nodes));
    for (int i = 0; i < node.size; i++) {
        const int64_t n = comb_length(collective, P, of_place(i, node, nodes));
        if (n > most) most = n;
    }
    return most;
}

/* sums [blocks of this place] = sum over this node's members of their blocks for this place in all nodes. */
static enum error_code reduce_scatter_two_level_inside(struct exchange *exchange, const struct collective *collective,
                                                       struct row node, struct row nodes,
                                                       void *sums, void *out, void *in, struct error *err)
{
    const int P = exchange->group->size;
    const struct comb mine = of_place(node.me, node, nodes);
    const int64_t n = comb_length(collective, P, mine);
    enum error_code code = OK;
    comb_pack(exchange, collective, mine, sums, collective->in);
    for (int step = 1; step < node.size && code == OK; step++) {
        const int to = imod(node.me + step, node.size);
        const struct comb theirs = of_place(to, node, nodes);
        comb_pack(exchange, collective, theirs, out, collective->in);
        code = send_and_add(exchange, collective, row_member(node, to), out, comb_length(collective, P, theirs),
                            row_member(node, node.me - step), in, sums, n, err);
    }
    return code;
}

/* out [block r] = sum over nodes of the sums that devices with this place have. */
static enum error_code reduce_scatter_two_level_between(struct exchange *exchange, const struct collective *collective,
                                                        struct row node, struct row nodes,
                                                        void *sums, void *in, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    const int64_t own = block_length(collective, P, r);
    enum error_code code = OK;
    copy_elements(exchange, collective, collective->out,
                  element(collective, sums, comb_length(collective, P, (struct comb){ node.me, node.size, nodes.me })),
                  own);
    for (int step = 1; step < nodes.size && code == OK; step++) {
        const int to = imod(nodes.me + step, nodes.size), peer = row_member(nodes, to);
        const int64_t at = comb_length(collective, P, (struct comb){ node.me, node.size, to });
        code = send_and_add(exchange, collective, peer, element(collective, sums, at),
                            block_length(collective, P, peer),
                            row_member(nodes, nodes.me - step), in, collective->out, own, err);
    }
    if (code == OK) reduce_finish(exchange, collective->reduction, collective->dtype, collective->out, own);
    return code;
}

/* Scratch has three parts: sums, received blocks, and a packed message for the largest place. */
static enum error_code reduce_scatter_two_level_run(struct group *group, const struct collective *collective,
                                                    struct error *err)
{
    const struct row node = row_in_node(collective, group->rank, group->size),
        nodes = row_of_nodes(collective, group->rank, group->size);
    int64_t n, most = longest_place(collective, group->size, node, nodes, &n);
    struct exchange x = exchange_begin(group, REDUCE_SCATTER);
    void *sums;
    enum error_code code = scratch_agreed(&x, collective, 2 * n + most, &sums, err);
    if (code == OK) code = reduce_scatter_two_level_inside(&x, collective, node, nodes, sums,
                                                           element(collective, sums, 2 * n),
                                                           element(collective, sums, n), err);
    if (code == OK) code = reduce_scatter_two_level_between(&x, collective, node, nodes, sums,
                                                            element(collective, sums, n), err);
    exchange_release(&x, sums);
    return code;
}

/* Bytes inside are those for other places; bytes between are those for other nodes. */
static struct collective_cost reduce_scatter_two_level_cost(int r, int P, const struct collective *collective)
{
    const struct row node = row_in_node(collective, r, P), nodes = row_of_nodes(collective, r, P);
    struct collective_cost cost = { .steps = (uint64_t)(node.size - 1 + nodes.size - 1),
                                    .steps_inside = (uint64_t)(node.size - 1) };
    for (int i = 0; i < node.size; i++)
        if (i != node.me) cost_send(&cost, collective, comb_length(collective, P, of_place(i, node, nodes)));
    cost.path_inside = cost.bytes;
    for (int i = 0; i < nodes.size; i++)
        if (i != nodes.me) cost_send(&cost, collective, block_length(collective, P, row_member(nodes, i)));
    cost.path = cost.bytes;
    cost.additions = (uint64_t)((node.size - 1) * comb_length(collective, P, of_place(node.me, node, nodes)) +
                                (nodes.size - 1) * block_length(collective, P, r));
    return cost;
}

const struct algorithm reduce_scatter_two_level = {
    .operation = REDUCE_SCATTER, .name = "two_level", .description = "inside nodes first, then between them",
    .order = BY_POSITION, .source = "ZeRO++, Wang et al. 2023, arXiv:2306.10209",
    .cost_formula = "(q-1 + P/q-1) a + n(P-1)/P b", .vectors = 3, .run = reduce_scatter_two_level_run,
        .cost = reduce_scatter_two_level_cost,
    .needs = EVEN_NODES_NEEDED, .refuses = needs_even_nodes, .by_nodes = true,
};
