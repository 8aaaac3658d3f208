/* reduce, chain: segments go from the last device to the root; each device adds its own.
 *
 * Source    the pipeline of Open MPI's coll_base_reduce.c
 * Needs     any P, any count, any root.
 * Cost      steps  S + P-2, S segments (segments.c)
 *           bytes  n from all but the root;  adds  n at all but the last
 * Memory    the vector at all but the root (the input is only read) and one segment.
 * Rounding  from the far end: root + (1 + (2 + ..)).
 *
 *     root <-- 1 <-- 2 <-- 3       while 1 receives segment s-1, 2 receives segment s
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const bool root = g->rank == c->root;
    const int64_t segment = flow_scratch(c, c->count);
    struct exchange x = exchange_begin(g, REDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, c, segment + (root ? 0 : c->count), &scratch, err);
    if (code != OK) return code;
    void *sums = root ? c->out : element(c, scratch, segment);

    copy_elements(&x, c, sums, c->in, c->count);
    struct flow f = flow_open(tree_chain(g->rank, g->size, c->root), sums, c->count);
    for (int s = 0; s < flow_segments(c, c->count) && code == OK; s++) code = flow_up(&x, c, &f, s, scratch, err);
    const enum error_code closed = flow_close(&x, &f, code == OK ? err : NULL);
    if (code == OK) code = closed;
    if (code == OK && root) reduce_finish(&x, c->reduction, c->dtype, c->out, c->count);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const uint64_t S = (uint64_t)flow_segments(c, c->count), steps = S + (uint64_t)P - 2;
    struct collective_cost cost = { .steps = steps, .depth = (uint64_t)(P - 1), .met = steps };
    flow_cost(&cost, c, tree_chain(r, P, c->root), c->count, true, false);
    if (r == c->root) cost.path = bytes_of(c, c->count) * steps / S;        /* it adds what has come */
    return cost;
}

const struct algorithm reduce_chain = {
    .operation = REDUCE, .name = "chain",
    .description = "in segments towards the root, each adding its own: for long vectors",
    .order = BY_TREE, .source = "Open MPI coll_base_reduce.c", .cost_formula = "(S + P-2) (a + n/S b)", .run = run,
    .cost = cost, .pipelined = flow_of_vector,
};
