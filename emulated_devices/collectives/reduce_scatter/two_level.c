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

static int64_t longest_place(const struct collective *c, int P, struct row node, struct row nodes, int64_t *total)
{
    int64_t most = 0;
    *total = comb_length(c, P, of_place(node.me, node, nodes));
    for (int i = 0; i < node.size; i++) {
        const int64_t n = comb_length(c, P, of_place(i, node, nodes));
        if (n > most) most = n;
    }
    return most;
}

static enum error_code inside(struct exchange *x, const struct collective *c, struct row node, struct row nodes,
                              void *sums, void *out, void *in, struct error *err)
{
    const int P = x->group->size;
    const struct comb mine = of_place(node.me, node, nodes);
    const int64_t n = comb_length(c, P, mine);
    enum error_code code = OK;
    comb_pack(x, c, mine, sums, c->in);
    for (int step = 1; step < node.size && code == OK; step++) {
        const int to = imod(node.me + step, node.size);
        const struct comb theirs = of_place(to, node, nodes);
        comb_pack(x, c, theirs, out, c->in);
        code = send_and_add(x, c, row_member(node, to), out, comb_length(c, P, theirs),
                            row_member(node, node.me - step), in, sums, n, err);
    }
    return code;
}

static enum error_code between(struct exchange *x, const struct collective *c, struct row node, struct row nodes,
                               void *sums, void *in, struct error *err)
{
    const int P = x->group->size, r = x->group->rank;
    const int64_t own = block_length(c, P, r);
    enum error_code code = OK;
    copy_elements(x, c, c->out, element(c, sums, comb_length(c, P, (struct comb){ node.me, node.size, nodes.me })),
                  own);
    for (int step = 1; step < nodes.size && code == OK; step++) {
        const int to = imod(nodes.me + step, nodes.size), peer = row_member(nodes, to);
        const int64_t at = comb_length(c, P, (struct comb){ node.me, node.size, to });
        code = send_and_add(x, c, peer, element(c, sums, at), block_length(c, P, peer),
                            row_member(nodes, nodes.me - step), in, c->out, own, err);
    }
    if (code == OK) reduce_finish(x, c->reduction, c->dtype, c->out, own);
    return code;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const struct row node = row_in_node(c, g->rank, g->size), nodes = row_of_nodes(c, g->rank, g->size);
    int64_t n, most = longest_place(c, g->size, node, nodes, &n);
    struct exchange x = exchange_begin(g, REDUCE_SCATTER);
    void *sums;
    enum error_code code = scratch_agreed(&x, c, 2 * n + most, &sums, err);
    if (code == OK) code = inside(&x, c, node, nodes, sums, element(c, sums, 2 * n), element(c, sums, n), err);
    if (code == OK) code = between(&x, c, node, nodes, sums, element(c, sums, n), err);
    exchange_release(&x, sums);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const struct row node = row_in_node(c, r, P), nodes = row_of_nodes(c, r, P);
    struct collective_cost cost = { .steps = (uint64_t)(node.size - 1 + nodes.size - 1),
                                    .steps_inside = (uint64_t)(node.size - 1) };
    for (int i = 0; i < node.size; i++)
        if (i != node.me) cost_send(&cost, c, comb_length(c, P, of_place(i, node, nodes)));
    cost.path_inside = cost.bytes;
    for (int i = 0; i < nodes.size; i++)
        if (i != nodes.me) cost_send(&cost, c, block_length(c, P, row_member(nodes, i)));
    cost.path = cost.bytes;
    cost.additions = (uint64_t)((node.size - 1) * comb_length(c, P, of_place(node.me, node, nodes)) +
                                (nodes.size - 1) * block_length(c, P, r));
    return cost;
}

const struct algorithm reduce_scatter_two_level = {
    .operation = REDUCE_SCATTER, .name = "two_level", .description = "inside nodes first, then between them",
    .order = BY_POSITION, .source = "ZeRO++, Wang et al. 2023, arXiv:2306.10209",
    .cost_formula = "(q-1 + P/q-1) a + n(P-1)/P b", .run = run, .cost = cost,
    .needs = EVEN_NODES_NEEDED, .refuses = needs_even_nodes, .by_nodes = true,
};
