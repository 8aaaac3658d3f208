/* broadcast, binomial tree: every device that has the vector sends it on; their number doubles in every step.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any count, any root.
 * Idea      count devices from the root: v = r - root mod P.  Device v receives from v without its lowest set bit, then
 *           sends to v + bit for every bit below that one, the largest first (the root: every bit below P).
 * Cost      steps  ceil(log2 P), the minimum
 *           bytes  n for each child: n ceil(log2 P) at the root, none at half of the devices
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 6, root 0; the number is the step in which a device receives:
 *
 *   0 --1--> 4 --2--> ( 6 is not there )
 *   |        '-----3--> 5
 *   |-----2--> 2 --3--> 3
 *   '-----------3--> 1
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code broadcast_binomial_run(struct group *group, const struct collective *collective,
                                              struct error *err)
{
    struct exchange x = exchange_begin(group, BROADCAST);
    return binomial_broadcast(&x, collective, collective->root, collective->out, collective->count, err);
}

static struct collective_cost broadcast_binomial_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    binomial_cost(&cost, collective, r, P, collective->root, collective->count, false);
    return cost;
}

const struct algorithm broadcast_binomial = {
    .operation = BROADCAST, .name = "binomial", .description = "everybody who has it sends it on: the fewest steps",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "ceil(log2 P) (a + n b)", .run = broadcast_binomial_run, .cost = broadcast_binomial_cost,
};
