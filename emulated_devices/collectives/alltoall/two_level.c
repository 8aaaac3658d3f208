/* alltoall, two levels: a leader per node collects the node's blocks, the leaders exchange them and distribute them.
 *
 * Source    the leader scheme of MPI libraries
 * Needs     several nodes, members of a node have consecutive ranks; any sizes: q on this node, N nodes; equal counts.
 * Cost      steps  (q-1) in, N-1 between nodes, (q-1) out
 *           bytes  a member: P blocks to its leader;  a leader: q blocks for each device elsewhere, P blocks to each
 *           member
 * Memory    at a leader everything of its node, q*P blocks, twice; and a message, q blocks for each of the largest
 *           node.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5 on nodes {0 1} {2 3} {4}:   1 -> 0, 3 -> 2      in, 5 blocks each
 *                                   0 -> 2, 2 -> 4 ..   4 blocks from 0 to 2 (2 members to 2); 2 blocks from 2 to 4
 *                                   0 -> 1, 2 -> 3      out, 5 blocks each
 */
#include "emulated_devices/collectives/algorithm.h"

/* A leader's buffers: have[l][d], the block of member l for device d; got[s][l], the block of device s for member l. */
struct leader {
    const struct collective *c;
    struct row node, nodes;
    const int *edge;
    int P;
    void *have, *got, *message;
};

static void *have(const struct leader *leader, int l, int d)
{
    return element(leader->c, leader->have, ((int64_t)l * leader->P + d) * leader->c->count);
}
static void *got(const struct leader *leader, int s, int l)
{
    return element(leader->c, leader->got, ((int64_t)s * leader->node.size + l) * leader->c->count);
}
static int two_level_members(const struct leader *leader, int node)
{
    return leader->edge[node + 1] - leader->edge[node];
}

static enum error_code two_level_collect_pieces(struct exchange *exchange, const struct leader *leader,
                                                struct error *err)
{
    const uint64_t bytes = bytes_of(leader->c, leader->P * leader->c->count);
    enum error_code code = OK;
    if (leader->node.me > 0) return exchange_both(exchange, leader->node.first, leader->c->in, bytes, -1, NULL, 0, err);
    copy_elements(exchange, leader->c, leader->have, leader->c->in, leader->P * leader->c->count);
    /* The leader receives all blocks of each member. */
    for (int l = 1; l < leader->node.size && code == OK; l++)
        code = exchange_both(exchange, -1, NULL, 0, row_member(leader->node, l), have(leader, l, 0), bytes, err);
    return code;
}

/* Leaders exchange the blocks of their nodes; step 0 is the exchange with the own node. */
static enum error_code trade(struct exchange *exchange, const struct leader *leader, struct error *err)
{
    const int q = leader->node.size;
    const int64_t n = leader->c->count;
    enum error_code code = OK;
    for (int step = 0; step < leader->nodes.size && code == OK; step++) {
        const int to = imod(leader->nodes.me + step, leader->nodes.size),
            from = imod(leader->nodes.me - step, leader->nodes.size);
        const int64_t line = two_level_members(leader, to) * n, out = q * line,
            in = (int64_t)q * two_level_members(leader, from) * n;
        /* One message to a node has, for each member here, the blocks for all members there. */
        for (int l = 0; l < q; l++)
            copy_elements(exchange, leader->c, element(leader->c, leader->message, l * line),
                          have(leader, l, leader->edge[to]), line);
        /* Received blocks are in order of the sending node's members, then of this node's members. */
        void *const place = got(leader, leader->edge[from], 0);
        if (step == 0) copy_elements(exchange, leader->c, place, leader->message, out);
        else
            code = exchange_both(exchange, leader->edge[to], leader->message, bytes_of(leader->c, out),
                                 leader->edge[from], place, bytes_of(leader->c, in), err);
    }
    return code;
}

/* A leader makes each member's result from `got`, and sends it; other members wait for theirs. */
static enum error_code hand_out(struct exchange *exchange, const struct leader *leader, struct error *err)
{
    const uint64_t bytes = bytes_of(leader->c, leader->P * leader->c->count);
    enum error_code code = OK;
    if (leader->node.me > 0)
        return exchange_both(exchange, -1, NULL, 0, leader->node.first, leader->c->out, bytes, err);
    for (int l = 0; l < leader->node.size && code == OK; l++) {
        /* The collected blocks are no longer needed, so their memory holds a member's result. */
        void *line = l == 0 ? leader->c->out : leader->have;
        /* A member's result is one block of every source, in the order of ranks. */
        for (int s = 0; s < leader->P; s++)
            copy_elements(exchange, leader->c, element(leader->c, line, s * leader->c->count), got(leader, s, l),
                          leader->c->count);
        if (l > 0) code = exchange_both(exchange, row_member(leader->node, l), line, bytes, -1, NULL, 0, err);
    }
    return code;
}

/* Only leaders have scratch; other members send their input and receive their result. */
static enum error_code two_level_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, ALLTOALL);
    int *edge = node_edges(&x, collective);
    struct leader v = { .c = collective,
                        .P = group->size,
                        .edge = edge,
                        .node = row_in_node(collective, group->rank, group->size),
                        .nodes = row_of_leaders(collective, group->rank, group->size, edge) };
    const int64_t all = v.node.me == 0 ? (int64_t)v.node.size * v.P * collective->count : 0;
    const int64_t message = v.node.me == 0
        ? (int64_t)v.node.size * largest_node(collective, group->size) * collective->count : 0;
    void *memory;
    enum error_code code = scratch_agreed(&x, collective, 2 * all + message, &memory, err);
    if (code == OK) {
        v.have = memory;
        v.got = element(collective, memory, all);
        v.message = element(collective, memory, 2 * all);
        code = two_level_collect_pieces(&x, &v, err);
    }
    if (code == OK && v.node.me == 0) code = trade(&x, &v, err);
    if (code == OK) code = hand_out(&x, &v, err);
    exchange_release(&x, memory);
    exchange_small_end(&x, edge);
    return code;
}

static struct collective_cost alltoall_two_level_cost(int r, int P, const struct collective *collective)
{
    const struct row node = row_in_node(collective, r, P);
    const int q = node.size, nodes = node_count(collective, P);
    struct collective_cost cost = { .steps_inside = (uint64_t)(2 * (largest_node(collective, P) - 1)) };
    for (int first = 0, end; first < P && node.me == 0; first = end) {
        end = node_end(collective, P, first);
        if (first != r) cost_send(&cost, collective, (int64_t)q * (end - first) * collective->count);
    }
    const uint64_t between = cost.bytes, line = bytes_of(collective, P * collective->count);
    if (node.me > 0) cost_send(&cost, collective, P * collective->count);
    for (int i = 1; i < q && node.me == 0; i++) cost_send(&cost, collective, P * collective->count);
    cost.steps = cost.steps_inside + (uint64_t)(nodes - 1);
    cost.path_inside = node.me == 0 ? 2 * (uint64_t)(q - 1) * line : line;    /* the leader receives as well */
    cost.path = between + cost.path_inside;
    return cost;
}

static const char *two_level_refuses(int P, const struct collective *collective)
{
    const char *counts = needs_equal_counts(P, collective);
    return counts != NULL ? counts : needs_nodes(P, collective);
}

const struct algorithm alltoall_two_level = {
    .operation = ALLTOALL, .name = "two_level",
    .description = "one device of each node collects, exchanges and hands out",
    .source = "the leader scheme of MPI libraries", .cost_formula = "(2(q-1) + N-1) a + about 3qn b",
    .needs = "equal counts; " NODES_NEEDED, .refuses = two_level_refuses, .by_nodes = true, .vectors = 6,
    .run = two_level_run,
        .cost = alltoall_two_level_cost,
};
