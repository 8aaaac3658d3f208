/* broadcast, double tree: half of the vector down each of two binary trees, in segments.
 *
 * Source    P. Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
 *           Parallel Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001
 * Needs     any P, any count, any root.
 * Idea      both trees span the P-1 devices other than the root, which feeds the top of each.  Leaves of one are inside
 *           the other, so every device sends about as much as it receives.
 * Cost      messages  one for each segment and edge;  bytes  n at the root, at most about 2 halves elsewhere
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 8, root 0, devices 1 .. 7:    tree 0:  0 -> 1 -> 5 -> 3, 7 ..      tree 1:  0 -> 2 ..
 */
#include "emulated_devices/collectives/algorithm.h"

static int double_tree_device_of(int i, int root, int P) { return imod(i + 1 + root, P); }

static struct tree tree_of(int rank, int P, int root, int which)
{
    const int i = imod(rank - root, P) - 1, top = tree_double_root(P - 1, which);
    if (i < 0) return (struct tree){ .parent = -1, .children = 1, .child = { double_tree_device_of(top, root, P) } };
    /* The two trees are over the devices without the root, which sends to both tops. */
    struct tree t = tree_double(i, P - 1, which);
    t.parent = t.parent < 0 ? root : double_tree_device_of(t.parent, root, P);
    for (int k = 0; k < t.children; k++) t.child[k] = double_tree_device_of(t.child[k], root, P);
    return t;
}

static int depth_of(int rank, int P, int root, int which)
{
    return rank == root ? 0 : 1 + tree_double_depth(imod(rank - root, P) - 1, P - 1, which);
}

static enum error_code broadcast_double_tree_run(struct group *group, const struct collective *collective,
                                                 struct error *err)
{
    struct exchange x = exchange_begin(group, BROADCAST);
    struct flow f[2];
    int depth[2], last = 0;
    enum error_code code = OK;
    for (int i = 0; i < 2; i++) {
        /* Half i of the vector takes tree i. */
        const int64_t first = block_start(collective->count, 2, i),
            n = block_start(collective->count, 2, i + 1) - first;
        f[i] = flow_open(tree_of(group->rank, group->size, collective->root, i),
                         element(collective, collective->out, first), n);
        depth[i] = depth_of(group->rank, group->size, collective->root, i);
        if (flow_segments(collective, n) + depth[i] > last) last = flow_segments(collective, n) + depth[i];
    }
    for (int t = 0; t < last && code == OK; t++)                /* segments in the order in which they can arrive */
        for (int i = 0; i < 2 && code == OK; i++)
            if (t >= depth[i] && t - depth[i] < flow_segments(collective, f[i].n))
                code = flow_down(&x, collective, &f[i], t - depth[i], err);
    for (int i = 0; i < 2; i++) {
        const enum error_code closed = flow_close(&x, &f[i], code == OK ? err : NULL);
        if (code == OK) code = closed;
    }
    return code;
}

static struct collective_cost broadcast_double_tree_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    const int S = flow_segments(collective, (collective->count + 1) / 2), levels = 1 + tree_double_levels(P - 1);
    for (int i = 0; i < 2; i++)
        flow_cost(&cost, collective, tree_of(r, P, collective->root, i),
                  block_start(collective->count, 2, i + 1) - block_start(collective->count, 2, i), false, true);
    cost.depth = P == 2 ? 1 : (uint64_t)(S - 1 + levels);
    cost.met = (uint64_t)(2 * (S - 1) + (levels > 2 ? levels : 2));
    /* A device has two messages in each step. */
    cost.path = bytes_of(collective, collective->count) * (uint64_t)(S - 1 + levels) / (uint64_t)S;
    return cost;
}

const struct algorithm broadcast_double_tree = {
    .operation = BROADCAST, .name = "double_tree",
    .description = "half of the vector down each of two binary trees, in segments",
    .source = "Sanders, Speck and Traeff 2009, doi:10.1016/j.parco.2009.09.001",
    .cost_formula = "(log2 P + 2S) a + about n b", .run = broadcast_double_tree_run, .cost = broadcast_double_tree_cost,
    .pipelined = flow_of_half,
};
