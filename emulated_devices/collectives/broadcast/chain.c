/* broadcast, chain: each device sends segments to the next, so that all devices work at the same time.
 *
 * Source    the pipeline of Open MPI's coll_base_bcast.c; NCCL's ring broadcast
 * Needs     any P, any count, any root.
 * Cost      steps  P-1 for the first segment, one more for each other: S + P-2, S segments (segments.c)
 *           bytes  n at all devices but the last
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     root --> 1 --> 2 --> 3       while 2 receives segment s, 3 receives segment s-1
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code broadcast_chain_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, BROADCAST);
    struct flow f = flow_open(tree_chain(group->rank, group->size, collective->root), collective->out,
                              collective->count);
    enum error_code code = OK;
    /* A segment goes on while the next one arrives. */
    for (int s = 0; s < flow_segments(collective, collective->count) && code == OK; s++)
        code = flow_down(&x, collective, &f, s, err);
    const enum error_code closed = flow_close(&x, &f, code == OK ? err : NULL);
    return code == OK ? closed : code;
}

static struct collective_cost broadcast_chain_cost(int r, int P, const struct collective *collective)
{
    const uint64_t steps = (uint64_t)(flow_segments(collective, collective->count) + P - 2);
    struct collective_cost cost = { .steps = steps, .depth = (uint64_t)(P - 1), .met = steps };
    flow_cost(&cost, collective, tree_chain(r, P, collective->root), collective->count, false, true);
    return cost;
}

const struct algorithm broadcast_chain = {
    .operation = BROADCAST, .name = "chain",
    .description = "in segments from each device to the next: for long vectors",
    .source = "Open MPI coll_base_bcast.c", .cost_formula = "(S + P-2) (a + n/S b)", .run = broadcast_chain_run,
        .cost = broadcast_chain_cost,
    .pipelined = flow_of_vector,
};
