/* barrier, dissemination: after step k (from 0) each device has heard, directly or indirectly, from 2^(k+1) devices.
 *
 * Source    D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization", Int. J. Parallel
 *           Programming 17(1), 1988, doi:10.1007/BF01379320
 * Needs     any P.
 * Cost      steps  ceil(log2 P), the minimum;  bytes  none: the messages are empty
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5:   step 1: r -> r+1      step 2: r -> r+2      step 3: r -> r+4        (mod P)
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code dissemination_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, BARRIER);
    enum error_code code = OK;
    (void)collective;
    for (int distance = 1; distance < group->size && code == OK; distance *= 2)
        code = exchange_both(&x, imod(group->rank + distance, group->size), NULL, 0,
                             imod(group->rank - distance, group->size), NULL, 0, err);
    return code;
}

static struct collective_cost dissemination_cost(int r, int P, const struct collective *collective)
{
    (void)r, (void)collective;
    return (struct collective_cost){ .messages = (uint64_t)ceil_log2(P), .steps = (uint64_t)ceil_log2(P) };
}

const struct algorithm barrier_dissemination = {
    .operation = BARRIER, .name = "dissemination", .description = "tell the device 1, 2, 4, .. further on",
    .source = "Hensgen, Finkel and Manber 1988, doi:10.1007/BF01379320", .cost_formula = "ceil(log2 P) a",
        .run = dissemination_run,
    .cost = dissemination_cost, .turns = turns_always,
};
