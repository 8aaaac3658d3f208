/* allreduce, one shot: every device sends its whole vector to all others, and each adds all vectors.
 *
 * Source    TensorRT-LLM and vLLM use it for short vectors inside a node (custom all-reduce kernels)
 * Needs     any P, any count.
 * Cost      steps  1 where a device can send to all at once; P-1 through one port
 *           bytes  n(P-1),  adds  n(P-1)
 * Memory    P n elements of scratch.
 * Rounding  all add in the order of devices 0, 1, .., P-1: the same bits.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     0 --n--> 1, 2, 3      1 --n--> 0, 2, 3      2 --n--> 0, 1, 3      3 --n--> 0, 1, 2      all at once
 */
#include "emulated_devices/collectives/algorithm.h"

static struct row all_of(int r, int P) { return (struct row){ .size = P, .me = r, .first = 0, .stride = 1 }; }

static enum error_code one_shot_run(struct group *group, const struct collective *collective, struct error *err)
{
    struct exchange x = exchange_begin(group, ALLREDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, group->size * collective->count, &scratch, err);
    /* Each device has all P vectors, and adds them in the order of ranks. */
    if (code == OK) code = everybody_adds(&x, collective, all_of(group->rank, group->size), collective->out,
                                          collective->count, scratch, err);
    if (code == OK) reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost one_shot_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    everybody_cost(&cost, collective, all_of(r, P), collective->count);
    return cost;
}

const struct algorithm allreduce_one_shot = {
    .operation = ALLREDUCE, .name = "one_shot", .description = "everything to everybody at once: for short vectors",
    .order = BY_RANK, .vectors = A_VECTOR_EACH, .source = "TensorRT-LLM custom all-reduce",
    .cost_formula = "a + n(P-1) b", .run = one_shot_run,
    .cost = one_shot_cost, .turns = turns_always,
};
