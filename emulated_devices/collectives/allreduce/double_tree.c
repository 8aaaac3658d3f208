/* allreduce, double tree: each half of the vector goes up and down one of two binary trees, in segments.
 *
 * Source    P. Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
 *           Parallel Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001; the trees are drawn as in NCCL
 * Needs     any P, any count.
 * Idea      in one pipelined tree, leaves never send down, and inner devices send everything twice.  The second tree
 *           swaps leaves and inner devices and has half of the data, so all devices send about equally.
 * Cost      messages  one for each segment, edge and direction;  bytes  at most about 2n at each device
 *           adds      n/2 for each child in each tree.  Steps grow with log2 P, not with P.
 * Memory    one scratch segment.
 * Rounding  each half is added once, in the order of its tree.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 8:     tree 0:      0                  tree 1:      7
 *                         4                               3
 *                     2       6                       5       1
 *                   1   3   5   7                   6   4   2   0
 */
#include "emulated_devices/collectives/algorithm.h"

static void halves(const struct collective *collective, int r, int P, struct flow flow[2])
{
    for (int i = 0; i < 2; i++) {
        const int64_t start = block_start(collective->count, 2, i);
        flow[i] = flow_open(tree_double(r, P, i), element(collective, collective->out, start),
                            block_start(collective->count, 2, i + 1) - start);
    }
}

static enum error_code up(struct exchange *exchange, const struct collective *collective, struct flow *flow, int s,
                          void *scratch, struct error *err)
{
    const int S = flow_segments(collective, flow->n);
    const int64_t first = block_start(flow->n, S, s);
    const enum error_code code = flow_up(exchange, collective, flow, s, scratch, err);
    if (code == OK && flow->tree.parent < 0)
        reduce_finish(exchange, collective->reduction, collective->dtype, element(collective, flow->data, first),
                      block_start(flow->n, S, s + 1) - first);
    return code;
}

/* In step t a device sends up the segment that left the deepest leaf t steps ago, and down the segment that has
 * returned from the root: it does not wait for segments that cannot have arrived. */
static enum error_code pipeline(struct exchange *exchange, const struct collective *collective, struct flow flow[2],
                                void *scratch, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank,
        S[2] = { flow_segments(collective, flow[0].n), flow_segments(collective, flow[1].n) };
    const int most = tree_double_levels(P), depth[2] = { tree_double_depth(r, P, 0), tree_double_depth(r, P, 1) };
    enum error_code code = OK;
    for (int t = 0; t < (S[0] > S[1] ? S[0] : S[1]) + 2 * most && code == OK; t++) {
        for (int i = 0; i < 2 && code == OK; i++) {
            /* Upwards: a device at depth d begins when sums of the deepest leaves have reached it. */
            const int s = t - (most - depth[i]);
            if (s >= 0 && s < S[i]) code = up(exchange, collective, &flow[i], s, scratch, err);
        }
        for (int i = 0; i < 2 && code == OK; i++) {
            /* Downwards: sums have gone all the way up and d levels down. */
            const int s = t - most - depth[i];
            if (s >= 0 && s < S[i]) code = flow_down(exchange, collective, &flow[i], s, err);
        }
    }
    return code;
}

/* out [count] = sum over members; each half of the vector goes through its tree. */
static enum error_code double_tree_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, ALLREDUCE);
    struct flow f[2];
    void *scratch;
    halves(collective, group->rank, group->size, f);
    enum error_code code = scratch_agreed(&x, collective, flow_scratch(collective, f[0].n > f[1].n ? f[0].n : f[1].n),
                                          &scratch, err);
    if (code != OK) return code;
    code = pipeline(&x, collective, f, scratch, err);
    for (int i = 0; i < 2; i++) {
        /* Sends that are still under way must end before scratch is freed, also after an error. */
        const enum error_code closed = flow_close(&x, &f[i], code == OK ? err : NULL);
        if (code == OK) code = closed;
    }
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost double_tree_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    const int S = flow_segments(collective, (collective->count + 1) / 2), levels = tree_double_levels(P);
    for (int i = 0; i < 2; i++)
        flow_cost(&cost, collective, tree_double(r, P, i),
                  block_start(collective->count, 2, i + 1) - block_start(collective->count, 2, i), true, true);
    cost.depth = (uint64_t)(S - 1 + 2 * levels);
    /* At each level but the last, a device's second child waits until the device is done with the first. */
    cost.met = (uint64_t)(4 * (S - 1) + 3 * levels - (levels > 0));
    /* A device has four messages in each step: up and down, in both trees. */
    cost.path = bytes_of(collective, collective->count) * (uint64_t)(2 * S + levels) / (uint64_t)S;
    return cost;
}

const struct algorithm allreduce_double_tree = {
    .operation = ALLREDUCE, .name = "double_tree",
    .description = "two binary trees, half of the vector each, in segments",
    .order = BY_POSITION, .source = "Sanders, Speck and Traeff 2009, doi:10.1016/j.parco.2009.09.001",
    .cost_formula = "(2 log2 P + 2S) a + about 2n b", .run = double_tree_run, .cost = double_tree_cost,
    .pipelined = flow_of_half,
};
