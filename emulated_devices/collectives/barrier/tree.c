/* barrier, tree: messages go up a binomial tree when all devices below have arrived, then down again.
 *
 * Source    elementary; fewer messages than dissemination, twice the steps
 * Needs     any P.
 * Cost      steps  2 ceil(log2 P);  bytes  none: the messages are empty.  2(P-1) messages in all
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 4:   1 -> 0   3 -> 2   2 -> 0   then   0 -> 2   0 -> 1   2 -> 3
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code tree_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, BARRIER);
    const enum error_code code = binomial_reduce(&x, collective, 0, NULL, 0, NULL, err);
    return code == OK ? binomial_broadcast(&x, collective, 0, NULL, 0, err) : code;
}

static struct collective_cost tree_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    binomial_cost(&cost, collective, r, P, 0, 0, true);
    binomial_cost(&cost, collective, r, P, 0, 0, false);
    return cost;
}

const struct algorithm barrier_tree = {
    .operation = BARRIER, .name = "tree", .description = "up a binomial tree and down again: fewest messages",
    .source = "the obvious way", .cost_formula = "2 ceil(log2 P) a", .run = tree_run, .cost = tree_cost,
};
