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

static void *have(const struct leader *v, int l, int d)
{
    return element(v->c, v->have, ((int64_t)l * v->P + d) * v->c->count);
}
static void *got(const struct leader *v, int s, int l)
{
    return element(v->c, v->got, ((int64_t)s * v->node.size + l) * v->c->count);
}
static int members(const struct leader *v, int node) { return v->edge[node + 1] - v->edge[node]; }

static enum error_code collect_pieces(struct exchange *x, const struct leader *v, struct error *err)
{
    const uint64_t bytes = bytes_of(v->c, v->P * v->c->count);
    enum error_code code = OK;
    if (v->node.me > 0) return exchange_both(x, v->node.first, v->c->in, bytes, -1, NULL, 0, err);
    copy_elements(x, v->c, v->have, v->c->in, v->P * v->c->count);
    /* The leader receives all blocks of each member. */
    for (int l = 1; l < v->node.size && code == OK; l++)
        code = exchange_both(x, -1, NULL, 0, row_member(v->node, l), have(v, l, 0), bytes, err);
    return code;
}

static enum error_code trade(struct exchange *x, const struct leader *v, struct error *err)
{
    const int q = v->node.size;
    const int64_t n = v->c->count;
    enum error_code code = OK;
    for (int step = 0; step < v->nodes.size && code == OK; step++) {
        const int to = imod(v->nodes.me + step, v->nodes.size), from = imod(v->nodes.me - step, v->nodes.size);
        const int64_t line = members(v, to) * n, out = q * line, in = (int64_t)q * members(v, from) * n;
        /* One message to a node has, for each member here, the blocks for all members there. */
        for (int l = 0; l < q; l++)
            copy_elements(x, v->c, element(v->c, v->message, l * line), have(v, l, v->edge[to]), line);
        /* Received blocks are in order of the sending node's members, then of this node's members. */
        void *const place = got(v, v->edge[from], 0);
        if (step == 0) copy_elements(x, v->c, place, v->message, out);
        else
            code = exchange_both(x, v->edge[to], v->message, bytes_of(v->c, out), v->edge[from], place,
                                 bytes_of(v->c, in), err);
    }
    return code;
}

static enum error_code hand_out(struct exchange *x, const struct leader *v, struct error *err)
{
    const uint64_t bytes = bytes_of(v->c, v->P * v->c->count);
    enum error_code code = OK;
    if (v->node.me > 0) return exchange_both(x, -1, NULL, 0, v->node.first, v->c->out, bytes, err);
    for (int l = 0; l < v->node.size && code == OK; l++) {
        void *line = l == 0 ? v->c->out : v->have;              /* the collected blocks are no longer needed */
        /* A member's result is one block of every source, in the order of ranks. */
        for (int s = 0; s < v->P; s++)
            copy_elements(x, v->c, element(v->c, line, s * v->c->count), got(v, s, l), v->c->count);
        if (l > 0) code = exchange_both(x, row_member(v->node, l), line, bytes, -1, NULL, 0, err);
    }
    return code;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    struct exchange x = exchange_begin(g, ALLTOALL);
    int *edge = node_edges(&x, c);
    struct leader v = { .c = c,
                        .P = g->size,
                        .edge = edge,
                        .node = row_in_node(c, g->rank, g->size),
                        .nodes = row_of_leaders(c, g->rank, g->size, edge) };
    const int64_t all = v.node.me == 0 ? (int64_t)v.node.size * v.P * c->count : 0;
    const int64_t message = v.node.me == 0 ? (int64_t)v.node.size * largest_node(c, g->size) * c->count : 0;
    void *memory;
    enum error_code code = scratch_agreed(&x, c, 2 * all + message, &memory, err);
    if (code == OK) {
        v.have = memory;
        v.got = element(c, memory, all);
        v.message = element(c, memory, 2 * all);
        code = collect_pieces(&x, &v, err);
    }
    if (code == OK && v.node.me == 0) code = trade(&x, &v, err);
    if (code == OK) code = hand_out(&x, &v, err);
    exchange_release(&x, memory);
    exchange_small_end(&x, edge);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const struct row node = row_in_node(c, r, P);
    const int q = node.size, nodes = node_count(c, P);
    struct collective_cost cost = { .steps_inside = (uint64_t)(2 * (largest_node(c, P) - 1)) };
    for (int first = 0, end; first < P && node.me == 0; first = end) {
        end = node_end(c, P, first);
        if (first != r) cost_send(&cost, c, (int64_t)q * (end - first) * c->count);
    }
    const uint64_t between = cost.bytes, line = bytes_of(c, P * c->count);
    if (node.me > 0) cost_send(&cost, c, P * c->count);
    for (int i = 1; i < q && node.me == 0; i++) cost_send(&cost, c, P * c->count);
    cost.steps = cost.steps_inside + (uint64_t)(nodes - 1);
    cost.path_inside = node.me == 0 ? 2 * (uint64_t)(q - 1) * line : line;    /* the leader receives as well */
    cost.path = between + cost.path_inside;
    return cost;
}

static const char *refuses(int P, const struct collective *c)
{
    const char *counts = needs_equal_counts(P, c);
    return counts != NULL ? counts : needs_nodes(P, c);
}

const struct algorithm alltoall_two_level = {
    .operation = ALLTOALL, .name = "two_level",
    .description = "one device of each node collects, exchanges and hands out",
    .source = "the leader scheme of MPI libraries", .cost_formula = "(2(q-1) + N-1) a + about 3qn b",
    .needs = "equal counts; " NODES_NEEDED, .refuses = refuses, .by_nodes = true, .run = run, .cost = cost,
};
