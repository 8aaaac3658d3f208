/* allreduce, two levels: reduce to the first device of each node, ring over these devices, broadcast in each node.
 *
 * Source    the hierarchical scheme of MPI libraries and of NCCL before rails; for instance X. Jia et al., "Highly
 *           scalable deep learning training system with mixed-precision: training ImageNet in four minutes",
 *           arXiv:1807.11205
 * Needs     several nodes, members of a node have consecutive ranks; any sizes: q on this node, N nodes.
 * Cost      steps  2(q-1) inside, 2(N-1) between nodes
 *           bytes  a first device: the ring of N, and n(q-1) to its node; the others: n
 *           adds   a first device: n(q-1) and the ring's; the others: none
 * Memory    n elements at the first device of a node.
 * Rounding  one sum for each block of the ring; the same bits on all devices.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5 on nodes {0 1} {2 3} {4}:
 *
 *                  0 <- 1,  2 <- 3      inside
 *                  0 -> 2 -> 4 -> 0     the ring of the first devices of the nodes
 *                  0 -> 1,  2 -> 3      inside
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code gather_sums(struct exchange *exchange, const struct collective *collective, struct row node,
                                   void *scratch, struct error *err)
{
    const uint64_t bytes = bytes_of(collective, collective->count);
    enum error_code code = OK;
    if (node.me > 0) return exchange_both(exchange, node.first, collective->out, bytes, -1, NULL, 0, err);
    for (int i = 1; i < node.size && code == OK; i++)
        code = add_from(exchange, collective, row_member(node, i), scratch, collective->out, collective->count, err);
    return code;
}

static enum error_code ring_of_nodes(struct exchange *exchange, const struct collective *collective, struct row nodes,
                                     void *scratch, struct error *err)
{
    enum error_code code = ring_reduce_scatter(exchange, collective, nodes, collective->out, collective->count,
                                               scratch, err);
    return code == OK ? ring_allgather(exchange, collective, nodes, collective->out, collective->count, err) : code;
}

static enum error_code hand_out(struct exchange *exchange, const struct collective *collective, struct row node,
                                struct error *err)
{
    const uint64_t bytes = bytes_of(collective, collective->count);
    enum error_code code = OK;
    if (node.me > 0) return exchange_both(exchange, -1, NULL, 0, node.first, collective->out, bytes, err);
    for (int i = 1; i < node.size && code == OK; i++)
        code = exchange_both(exchange, row_member(node, i), collective->out, bytes, -1, NULL, 0, err);
    return code;
}

/* out [count] = sum over members: inside the node, between leaders, inside the node. */
static enum error_code allreduce_two_level_run(struct group *group, const struct collective *collective,
                                               struct error *err)
{
    struct exchange x = exchange_begin(group, ALLREDUCE);
    int *edge = node_edges(&x, collective);
    const struct row node = row_in_node(collective, group->rank, group->size),
        nodes = row_of_leaders(collective, group->rank, group->size, edge);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, node.me == 0 ? collective->count : 0, &scratch, err);
    /* The first device of each node adds up its node; these leaders then run a ring. */
    if (code == OK) code = gather_sums(&x, collective, node, scratch, err);
    if (code == OK && node.me == 0) code = ring_of_nodes(&x, collective, nodes, scratch, err);
    if (code == OK && node.me == 0)
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    if (code == OK) code = hand_out(&x, collective, node, err);
    exchange_release(&x, scratch);
    exchange_small_end(&x, edge);
    return code;
}

static struct collective_cost allreduce_two_level_cost(int r, int P, const struct collective *collective)
{
    const struct row node = row_in_node(collective, r, P), nodes = row_of_leaders(collective, r, P, NULL);
    struct collective_cost cost = { 0 };
    if (node.me > 0) cost_send(&cost, collective, collective->count);
    else {
        ring_cost(&cost, collective, nodes, collective->count, true);
        ring_cost(&cost, collective, nodes, collective->count, false);
        for (int i = 1; i < node.size; i++) cost_send(&cost, collective, collective->count);
        cost.additions += (uint64_t)((node.size - 1) * collective->count);
    }
    const uint64_t largest = (uint64_t)largest_node(collective, P),
        inside = bytes_of(collective, 2 * (node.size - 1) * collective->count);
    cost.steps_inside = 2 * (largest - 1);
    cost.steps = cost.steps_inside + 2 * (uint64_t)(nodes.size - 1);
    cost.path = cost.bytes + (node.me == 0 ? inside / 2 : 0);              /* the leader receives as well */
    cost.path_inside = node.me == 0 ? inside : cost.bytes;
    return cost;
}

const struct algorithm allreduce_two_level = {
    .operation = ALLREDUCE, .name = "two_level", .description = "inside nodes to one device, a ring of nodes, and back",
    .order = BY_POSITION, .source = "Jia et al. 2018, arXiv:1807.11205",
    .cost_formula = "2(q-1 + N-1) a + (2(q-1)n + 2n) b", .run = allreduce_two_level_run,
        .cost = allreduce_two_level_cost,
    .needs = NODES_NEEDED, .refuses = needs_nodes, .by_nodes = true,
};
