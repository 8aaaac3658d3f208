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
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 6, q = 2:     0 - 1        rows     {0,1} {2,3} {4,5}: halves of the vector are added
 *                   2 - 3        columns  {0,2,4} {1,3,5}:   a half each, now added over all six
 *                   4 - 5        rows     again:             the halves come together
 */
#include "emulated_devices/collectives/algorithm.h"

/* The shard of a device after the rows: ring_reduce_scatter leaves block me + 1. */
static int64_t shard(const struct collective *collective, struct row row, int64_t *n)
{
    const int b = imod(row.me + 1, row.size);
    *n = part_length(collective->count, row.size, b);
    return block_start(collective->count, row.size, b);
}

static enum error_code torus_2d_run(struct group *group, const struct collective *collective, struct error *err)
{
    const struct row row = row_in_node(collective, group->rank, group->size),
        column = row_of_nodes(collective, group->rank, group->size);
    struct exchange x = exchange_begin(group, ALLREDUCE);
    int64_t n;
    void *mine = element(collective, collective->out, shard(collective, row, &n)), *scratch;
    enum error_code code = scratch_agreed(&x, collective, part_length(collective->count, row.size, 0), &scratch, err);
    /* Along the row: each device of a node has the node's sum of one shard. */
    if (code == OK) code = ring_reduce_scatter(&x, collective, row, collective->out, collective->count, scratch, err);
    /* Along the column the shards of all nodes are added, and come back whole. */
    if (code == OK) code = ring_reduce_scatter(&x, collective, column, mine, n, scratch, err);
    if (code == OK) code = ring_allgather(&x, collective, column, mine, n, err);
    if (code == OK) reduce_finish(&x, collective->reduction, collective->dtype, mine, n);
    /* Along the row again: the shards become the vector. */
    if (code == OK) code = ring_allgather(&x, collective, row, collective->out, collective->count, err);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost torus_2d_cost(int r, int P, const struct collective *collective)
{
    const struct row row = row_in_node(collective, r, P), column = row_of_nodes(collective, r, P);
    struct collective_cost cost = { 0 };
    int64_t n;
    shard(collective, row, &n);
    ring_cost(&cost, collective, column, n, true);
    ring_cost(&cost, collective, column, n, false);
    const uint64_t columns = cost.bytes;
    ring_cost(&cost, collective, row, collective->count, true);
    ring_cost(&cost, collective, row, collective->count, false);
    cost.path = cost.bytes;
    cost.path_inside = cost.bytes - columns;
    cost.steps_inside = 2 * (uint64_t)(row.size - 1);
    return cost;
}

const struct algorithm allreduce_torus_2d = {
    .operation = ALLREDUCE, .name = "torus_2d",
    .description = "rings along rows and columns: few bytes, fewer steps than one ring",
    .order = BY_POSITION, .source = "Mikami et al. 2018, arXiv:1811.05233",
    .cost_formula = "2(q-1 + P/q-1) a + 2n(P-1)/P b", .run = torus_2d_run, .cost = torus_2d_cost,
    .needs = EVEN_NODES_NEEDED, .refuses = needs_even_nodes, .by_nodes = true,
};
