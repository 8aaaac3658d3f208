/* alltoall, two-dimensional hierarchical: first inside the node to the right place, then between nodes, in long
 * messages.
 *
 * Source    C. Hwang et al., "Tutel: adaptive mixture-of-experts at scale", MLSys 2023, arXiv:2206.03382
 * Needs     equally many consecutive ranks on every node; on one node or none, q is the largest divisor of P not above
 *           its root (1 for primes); equal counts.
 * Idea      device l of a node collects its node's blocks for all devices with place l; then devices with the same
 *           place exchange them between nodes, q blocks per message.
 * Cost      steps  (q-1) inside, (P/q - 1) between nodes
 *           bytes  (q-1) P/q blocks inside, (P/q - 1) q blocks between: nearly 2n, but in messages q times as long
 * Memory    the vector twice.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 6, q = 2, device 0:    inside   sends its blocks for 1, 3, 5 to device 1; receives those of device 1 for 0, 2, 4
 *                            between  sends the blocks of 0 and 1 for 2 to device 2, those for 4 to device 4
 */
#include "emulated_devices/collectives/algorithm.h"

/* Stage 1 fills from[l][m]: the block of node member l for the device of node m with this device's place. */
static enum error_code alltoall_2dh_inside(struct exchange *exchange, const struct collective *collective,
                                           struct row node, struct row nodes, void *from, void *out, struct error *err)
{
    const int64_t line = nodes.size * collective->count;
    enum error_code code = OK;
    for (int step = 0; step < node.size && code == OK; step++) {
        const int to = imod(node.me + step, node.size), source = imod(node.me - step, node.size);
        /* One message has the blocks for all devices with the receiver's place, node by node. */
        for (int m = 0; m < nodes.size; m++)
            copy_elements(exchange, collective, element(collective, out, m * collective->count),
                          algorithm_given(collective, m * node.size + to), collective->count);
        void *in = element(collective, from, source * line);
        if (step == 0) copy_elements(exchange, collective, in, out, line);
        else
            code = exchange_both(exchange, row_member(node, to), out, bytes_of(collective, line),
                                 row_member(node, source), in, bytes_of(collective, line), err);
    }
    return code;
}

/* Stage 2: sends a column of it to every node.  Received blocks are in order of sources, as in out. */
static enum error_code alltoall_2dh_between(struct exchange *exchange, const struct collective *collective,
                                            struct row node, struct row nodes, void *from, void *out, struct error *err)
{
    const int64_t line = nodes.size * collective->count, column = node.size * collective->count;
    enum error_code code = OK;
    for (int step = 0; step < nodes.size && code == OK; step++) {
        const int to = imod(nodes.me + step, nodes.size), source = imod(nodes.me - step, nodes.size);
        /* One message has what all members of this node have for that device. */
        for (int l = 0; l < node.size; l++)
            copy_elements(exchange, collective, element(collective, out, l * collective->count),
                          element(collective, from, l * line + to * collective->count), collective->count);
        void *in = algorithm_taken(collective, source * node.size);
        if (step == 0) copy_elements(exchange, collective, in, out, column);
        else
            code = exchange_both(exchange, row_member(nodes, to), out, bytes_of(collective, column),
                                 row_member(nodes, source), in, bytes_of(collective, column), err);
    }
    return code;
}

static const char *alltoall_2dh_refuses(int P, const struct collective *collective)
{
    const char *counts = needs_equal_counts(P, collective);
    return counts != NULL ? counts : needs_even_nodes(P, collective);
}

static enum error_code alltoall_2dh_run(struct group *group, const struct collective *collective, struct error *err)
{
    const struct row node = row_in_node(collective, group->rank, group->size),
        nodes = row_of_nodes(collective, group->rank, group->size);
    const int64_t n = group->size * collective->count;
    struct exchange x = exchange_begin(group, ALLTOALL);
    void *from;
    enum error_code code = scratch_agreed(&x, collective, 2 * n, &from, err);
    if (code == OK) code = alltoall_2dh_inside(&x, collective, node, nodes, from, element(collective, from, n), err);
    if (code == OK) code = alltoall_2dh_between(&x, collective, node, nodes, from, element(collective, from, n), err);
    exchange_release(&x, from);
    return code;
}

static struct collective_cost alltoall_2dh_cost(int r, int P, const struct collective *collective)
{
    const struct row node = row_in_node(collective, r, P), nodes = row_of_nodes(collective, r, P);
    struct collective_cost cost = { .steps = (uint64_t)(node.size - 1 + nodes.size - 1),
                                    .steps_inside = (uint64_t)(node.size - 1) };
    for (int i = 1; i < node.size; i++) cost_send(&cost, collective, nodes.size * collective->count);
    cost.path_inside = cost.bytes;
    for (int i = 1; i < nodes.size; i++) cost_send(&cost, collective, node.size * collective->count);
    cost.path = cost.bytes;
    return cost;
}

const struct algorithm alltoall_2dh = {
    .operation = ALLTOALL, .name = "2dh",
    .description = "inside the node to the right place, then between nodes in long messages",
    .source = "Tutel, Hwang et al. 2023, arXiv:2206.03382", .cost_formula = "(q-1 + P/q-1) a + n(2 - 1/q - q/P) b",
    .needs = "equal counts; " EVEN_NODES_NEEDED, .refuses = alltoall_2dh_refuses, .by_nodes = true,
        .vectors = 2, .run = alltoall_2dh_run, .cost = alltoall_2dh_cost,
};
