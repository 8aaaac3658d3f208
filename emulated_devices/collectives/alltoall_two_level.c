/* alltoall, two levels: one device of a node collects everything, those exchange it, and each hands it out.
 *
 * Source    the leader scheme of MPI libraries
 * Needs     any P = nodes * q, q the largest divisor of P not above its root (1 for primes); equal counts.
 * Cost      steps  (q-1) in, (P/q - 1) between nodes, (q-1) out
 *           bytes  a member: P blocks to its leader;  a leader: q*q blocks to each other node, P blocks to each member
 * Memory    at a leader everything of its node, q*P blocks, twice; and a message.
 * Rounding  permutes: bits are equal.
 *
 * P = 4, q = 2:    1 -> 0, 3 -> 2      0 <-> 2, 4 blocks each way      0 -> 1, 2 -> 3
 */
#include "emulated_devices/collectives/algorithm.h"

/* A leader's view: have[l][d], the block of member l for device d; got[s][l], the block of device s for member l. */
struct leader { const struct collective *c; struct row node, nodes; int P; void *have, *got, *message; };

static void *have(const struct leader *v, int l, int d) { return element(v->c, v->have, ((int64_t)l * v->P + d) * v->c->count); }
static void *got(const struct leader *v, int s, int l) { return element(v->c, v->got, ((int64_t)s * v->node.size + l) * v->c->count); }

static enum error_code collect(struct exchange *x, const struct leader *v, struct error *err)
{
    const uint64_t bytes = bytes_of(v->c, v->P * v->c->count);
    enum error_code code = OK;
    if (v->node.me > 0) return exchange_both(x, v->node.first, v->c->in, bytes, -1, NULL, 0, err);
    copy_elements(x, v->c, v->have, v->c->in, v->P * v->c->count);
    for (int l = 1; l < v->node.size && code == OK; l++) code = exchange_both(x, -1, NULL, 0, row_member(v->node, l), have(v, l, 0), bytes, err);
    return code;
}

static enum error_code trade(struct exchange *x, const struct leader *v, struct error *err)
{
    const int q = v->node.size;
    const int64_t n = (int64_t)q * q * v->c->count;
    enum error_code code = OK;
    for (int step = 0; step < v->nodes.size && code == OK; step++) {
        const int to = imod(v->nodes.me + step, v->nodes.size), from = imod(v->nodes.me - step, v->nodes.size);
        for (int l = 0; l < q; l++)
            copy_elements(x, v->c, element(v->c, v->message, (int64_t)l * q * v->c->count), have(v, l, to * q), q * v->c->count);
        if (step == 0) copy_elements(x, v->c, got(v, from * q, 0), v->message, n);
        else code = exchange_both(x, row_member(v->nodes, to), v->message, bytes_of(v->c, n), row_member(v->nodes, from), got(v, from * q, 0), bytes_of(v->c, n), err);
    }
    return code;
}

static enum error_code hand_out(struct exchange *x, const struct leader *v, struct error *err)
{
    const uint64_t bytes = bytes_of(v->c, v->P * v->c->count);
    enum error_code code = OK;
    if (v->node.me > 0) return exchange_both(x, -1, NULL, 0, v->node.first, v->c->out, bytes, err);
    for (int l = 0; l < v->node.size && code == OK; l++) {
        void *line = l == 0 ? v->c->out : v->have;              /* what was collected is no longer needed */
        for (int s = 0; s < v->P; s++) copy_elements(x, v->c, element(v->c, line, s * v->c->count), got(v, s, l), v->c->count);
        if (l > 0) code = exchange_both(x, row_member(v->node, l), line, bytes, -1, NULL, 0, err);
    }
    return code;
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    struct leader v = { .c = c, .P = g->size, .node = row_in_node(g->rank, g->size), .nodes = row_of_nodes(g->rank, g->size) };
    const int64_t all = v.node.me == 0 ? (int64_t)v.node.size * v.P * c->count : 0;
    const int64_t message = v.node.me == 0 ? (int64_t)v.node.size * v.node.size * c->count : 0;
    struct exchange x = exchange_begin(g, ALLTOALL);
    enum error_code code = scratch_agreed(&x, c, 2 * all + message, &v.have, err);
    if (code != OK) return code;
    void *memory = v.have;
    v.got = element(c, memory, all);
    v.message = element(c, memory, 2 * all);
    code = collect(&x, &v, err);
    if (code == OK && v.node.me == 0) code = trade(&x, &v, err);
    if (code == OK) code = hand_out(&x, &v, err);
    exchange_release(&x, memory);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const struct row node = row_in_node(r, P), nodes = row_of_nodes(r, P);
    struct collective_cost cost = { .steps = (uint64_t)(2 * (node.size - 1) + nodes.size - 1) };
    if (node.me > 0) cost_send(&cost, c, P * c->count);
    for (int i = 1; i < nodes.size && node.me == 0; i++) cost_send(&cost, c, (int64_t)node.size * node.size * c->count);
    for (int i = 1; i < node.size && node.me == 0; i++) cost_send(&cost, c, P * c->count);
    cost.path = cost.bytes + (node.me == 0 ? bytes_of(c, (node.size - 1) * P * c->count) : 0);   /* the leader receives as well */
    return cost;
}

const struct algorithm alltoall_two_level = {
    .operation = ALLTOALL, .name = "two_level", .description = "one device of each node collects, exchanges and hands out",
    .source = "the leader scheme of MPI libraries", .cost_formula = "(2(q-1) + P/q-1) a + about 3qn b",
    .refuses = needs_equal_counts, .run = run, .cost = cost,
};
