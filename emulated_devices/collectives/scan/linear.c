/* scan, linear: each device adds its vector to the sum from its left and sends the result on.
 *
 * Source    elementary
 * Needs     any P, any count; inclusive or exclusive.
 * Cost      steps  P-1;  bytes  n from all but the last;  adds  n at all but the first (exclusive: nor at the last)
 * Memory    the vector twice: the input may be the output.
 * Rounding  from left to right, as one device would.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     0 --x0--> 1 --x0+x1--> 2 --x0+x1+x2--> 3
 */
#include "emulated_devices/collectives/algorithm.h"

/* out [count] = x0 + .. + xr; if exclusive, x0 + .. + x(r-1).  Sums go from left to right. */
static enum error_code scan_linear_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    const uint64_t bytes = bytes_of(collective, collective->count);
    const bool adds = r > 0 && (r < P - 1 || !collective->exclusive);
    struct exchange x = exchange_begin(group, SCAN);
    void *before;
    enum error_code code = scratch_agreed(&x, collective, 2 * collective->count, &before, err);
    if (code != OK) return code;
    void *with = element(collective, before, collective->count);

    if (r > 0) code = exchange_both(&x, -1, NULL, 0, r - 1, before, bytes, err);
    copy_elements(&x, collective, with, r > 0 ? before : collective->in, collective->count);
    if (adds && code == OK)
        reduce_local(&x, collective->reduction, collective->dtype, with, collective->in, collective->count);
    if (r < P - 1 && code == OK) code = exchange_both(&x, r + 1, with, bytes, -1, NULL, 0, err);
    if (code == OK && !(collective->exclusive && r == 0)) {
        copy_elements(&x, collective, collective->out, collective->exclusive ? before : with, collective->count);
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    }
    exchange_release(&x, before);
    return code;
}

static struct collective_cost scan_linear_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1) };
    if (r < P - 1) cost_send(&cost, collective, collective->count);
    if (r > 0 && (r < P - 1 || !collective->exclusive)) cost.additions = (uint64_t)collective->count;
    return cost;
}

const struct algorithm scan_linear = {
    .operation = SCAN, .name = "linear", .description = "add one's own and pass it on",
    .order = BY_RANK, .source = "the obvious way", .cost_formula = "(P-1) (a + n b)", .vectors = 2,
    .run = scan_linear_run,
        .cost = scan_linear_cost,
};
