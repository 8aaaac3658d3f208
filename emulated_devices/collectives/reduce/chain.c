/* reduce, chain: segments go from the last device to the root; each device adds its own.
 *
 * Source    the pipeline of Open MPI's coll_base_reduce.c
 * Needs     any P, any count, any root.
 * Cost      steps  S + P-2, S segments (segments.c)
 *           bytes  n from all but the root;  adds  n at all but the last
 * Memory    the vector at all but the root (the input is only read) and one segment.
 * Rounding  from the far end: root + (1 + (2 + ..)).
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     root <-- 1 <-- 2 <-- 3       while 1 receives segment s-1, 2 receives segment s
 */
#include "emulated_devices/collectives/algorithm.h"

/* out [count] of the root = sum over members, added from the far end of the chain. */
static enum error_code chain_run(struct group *group, const struct collective *collective, struct error *err)
{
    const bool root = group->rank == collective->root;
    const int64_t segment = flow_scratch(collective, collective->count);
    struct exchange x = exchange_begin(group, REDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, segment + (root ? 0 : collective->count), &scratch, err);
    if (code != OK) return code;
    void *sums = root ? collective->out : element(collective, scratch, segment);

    copy_elements(&x, collective, sums, collective->in, collective->count);
    struct flow f = flow_open(tree_chain(group->rank, group->size, collective->root), sums, collective->count);
    for (int s = 0; s < flow_segments(collective, collective->count) && code == OK; s++)
        code = flow_up(&x, collective, &f, s, scratch, err);
    const enum error_code closed = flow_close(&x, &f, code == OK ? err : NULL);
    if (code == OK) code = closed;
    if (code == OK && root)
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost chain_cost(int r, int P, const struct collective *collective)
{
    const uint64_t S = (uint64_t)flow_segments(collective, collective->count), steps = S + (uint64_t)P - 2;
    struct collective_cost cost = { .steps = steps, .depth = (uint64_t)(P - 1), .met = steps };
    flow_cost(&cost, collective, tree_chain(r, P, collective->root), collective->count, true, false);
    /* The device adds what has come. */
    if (r == collective->root) cost.path = bytes_of(collective, collective->count) * steps / S;
    return cost;
}

const struct algorithm reduce_chain = {
    .operation = REDUCE, .name = "chain",
    .description = "in segments towards the root, each adding its own: for long vectors",
    .order = BY_TREE, .source = "Open MPI coll_base_reduce.c", .cost_formula = "(S + P-2) (a + n/S b)",
        .vectors = 2, .run = chain_run,
    .cost = chain_cost, .pipelined = flow_of_vector,
};
