/* allreduce, 2D torus: rings: reduce-scatter along rows, allreduce along columns, allgather along rows.
 *
 * Source    H. Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", arXiv:1811.05233
 * Needs     equally many consecutive ranks on every node; on one node or none, q is the largest divisor of P not above
 *           its root (1 for primes: then it is the ring); rows are nodes; any count.
 * Cost      steps  2(q-1) + 2(P/q-1), where one ring takes 2(P-1)
 *           bytes  2n(P-1)/P when everything divides: as few as the ring
 *           adds   n(P-1)/P
 * Memory    one block of a row, ceil(n/q) elements.
 * Rounding  each element is added once along a row and once along a column: the same bits on all devices.
 *
 * P = 6, q = 2:     0 - 1        rows     {0,1} {2,3} {4,5}: halves of the vector are added
 *                   2 - 3        columns  {0,2,4} {1,3,5}:   a half each, now added over all six
 *                   4 - 5        rows     again:             the halves come together
 */
#include "emulated_devices/collectives/algorithm.h"

/* The shard of a device after the rows: ring_reduce_scatter leaves block me + 1. */
static int64_t shard(const struct collective *c, struct row w, int64_t *n)
{
    const int b = imod(w.me + 1, w.size);
    *n = part_length(c->count, w.size, b);
    return block_start(c->count, w.size, b);
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const struct row row = row_in_node(c, g->rank, g->size), column = row_of_nodes(c, g->rank, g->size);
    struct exchange x = exchange_begin(g, ALLREDUCE);
    int64_t n;
    void *mine = element(c, c->out, shard(c, row, &n)), *scratch;
    enum error_code code = scratch_agreed(&x, c, part_length(c->count, row.size, 0), &scratch, err);
    /* Along the row: each device of a node has the node's sum of one shard. */
    if (code == OK) code = ring_reduce_scatter(&x, c, row, c->out, c->count, scratch, err);
    /* Along the column the shards of all nodes are added, and come back whole. */
    if (code == OK) code = ring_reduce_scatter(&x, c, column, mine, n, scratch, err);
    if (code == OK) code = ring_allgather(&x, c, column, mine, n, err);
    if (code == OK) reduce_finish(&x, c->reduction, c->dtype, mine, n);
    /* Along the row again: the shards become the vector. */
    if (code == OK) code = ring_allgather(&x, c, row, c->out, c->count, err);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const struct row row = row_in_node(c, r, P), column = row_of_nodes(c, r, P);
    struct collective_cost cost = { 0 };
    int64_t n;
    shard(c, row, &n);
    ring_cost(&cost, c, column, n, true);
    ring_cost(&cost, c, column, n, false);
    const uint64_t columns = cost.bytes;
    ring_cost(&cost, c, row, c->count, true);
    ring_cost(&cost, c, row, c->count, false);
    cost.path = cost.bytes;
    cost.path_inside = cost.bytes - columns;
    cost.steps_inside = 2 * (uint64_t)(row.size - 1);
    return cost;
}

const struct algorithm allreduce_torus_2d = {
    .operation = ALLREDUCE, .name = "torus_2d",
    .description = "rings along rows and columns: few bytes, fewer steps than one ring",
    .order = BY_POSITION, .source = "Mikami et al. 2018, arXiv:1811.05233",
    .cost_formula = "2(q-1 + P/q-1) a + 2n(P-1)/P b", .run = run, .cost = cost,
    .needs = EVEN_NODES_NEEDED, .refuses = needs_even_nodes, .by_nodes = true,
};
