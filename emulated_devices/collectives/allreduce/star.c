/* allreduce, star: all devices send to device 0, which adds and sends the result back.
 *
 * Source    elementary; the baseline for the others
 * Needs     any P, any count.
 * Cost      steps  2(P-1)
 *           bytes  n(P-1) elements from device 0, n from each other one
 *           adds   n(P-1), all at device 0
 * Memory    n elements of scratch at device 0.
 * Rounding  in the order of devices 0, 1, .., P-1; one sum, computed once.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     1 --.       .-- 1
 *     2 ---> 0 ===--- 2        all through one port: time grows with P
 *     3 --'       '-- 3
 */
#include "emulated_devices/collectives/algorithm.h"

/* out [count] = sum over members, which device 0 computes alone. */
static enum error_code star_run(struct group *group, const struct collective *collective, struct error *err)
{
    const bool centre = group->rank == 0;
    const uint64_t bytes = bytes_of(collective, collective->count);
    struct exchange x = exchange_begin(group, ALLREDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, centre ? collective->count : 0, &scratch, err);

    for (int r = 1; r < group->size && centre && code == OK; r++)
        code = add_from(&x, collective, r, scratch, collective->out, collective->count, err);
    if (centre && code == OK)
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    /* A device sends its vector to device 0, and waits for the sum in its place. */
    if (!centre && code == OK) code = exchange_both(&x, 0, collective->out, bytes, -1, NULL, 0, err);
    if (!centre && code == OK) code = exchange_both(&x, -1, NULL, 0, 0, collective->out, bytes, err);
    for (int r = 1; r < group->size && centre && code == OK; r++)
        code = exchange_both(&x, r, collective->out, bytes, -1, NULL, 0, err);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost star_cost(int r, int P, const struct collective *collective)
{
    const uint64_t peers = r == 0 ? (uint64_t)(P - 1) : 1;
    return (struct collective_cost){ .messages = peers, .bytes = peers * bytes_of(collective, collective->count),
                                     .additions = r == 0 ? peers * (uint64_t)collective->count : 0,
                                     .steps = 2 * (uint64_t)(P - 1),
                                     .depth = 2 };
}

const struct algorithm allreduce_star = {
    .operation = ALLREDUCE, .name = "star", .description = "everything to device 0 and back: simple, and slow for many",
    .order = BY_RANK, .source = "the obvious way", .cost_formula = "2(P-1) (a + n b)", .run = star_run,
        .cost = star_cost,
};
