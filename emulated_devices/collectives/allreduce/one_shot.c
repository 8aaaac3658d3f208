/* allreduce, one shot: every device sends its whole vector to all others, and each adds all vectors.
 *
 * Source    TensorRT-LLM and vLLM use it for short vectors inside a node (custom all-reduce kernels)
 * Needs     any P, any count.
 * Cost      steps  1 where a device can send to all at once; P-1 through one port
 *           bytes  n(P-1),  adds  n(P-1)
 * Memory    P n elements of scratch.
 * Rounding  all add in the order of devices 0, 1, .., P-1: the same bits.
 *
 *     0 --n--> 1, 2, 3      1 --n--> 0, 2, 3      2 --n--> 0, 1, 3      3 --n--> 0, 1, 2      all at once
 */
#include "emulated_devices/collectives/algorithm.h"

static struct row all_of(int r, int P) { return (struct row){ .size = P, .me = r, .first = 0, .stride = 1 }; }

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    struct exchange x = exchange_begin(g, ALLREDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, c, g->size * c->count, &scratch, err);
    /* Each device has all P vectors, and adds them in the order of ranks. */
    if (code == OK) code = everybody_adds(&x, c, all_of(g->rank, g->size), c->out, c->count, scratch, err);
    if (code == OK) reduce_finish(&x, c->reduction, c->dtype, c->out, c->count);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { 0 };
    everybody_cost(&cost, c, all_of(r, P), c->count);
    return cost;
}

const struct algorithm allreduce_one_shot = {
    .operation = ALLREDUCE, .name = "one_shot", .description = "everything to everybody at once: for short vectors",
    .order = BY_RANK, .source = "TensorRT-LLM custom all-reduce", .cost_formula = "a + n(P-1) b", .run = run,
    .cost = cost, .turns = turns_always,
};
