/* reduce-scatter, direct: every device sends every other device its block, all at once.
 *
 * Source    the first half of the two-shot all-reduce of TensorRT-LLM and vLLM
 * Needs     any P, any counts.
 * Cost      steps  1 where a device can send to all at once; P-1 through one port
 *           bytes  n - |b(r)|;  adds  (P-1)|b(r)|
 * Memory    P blocks, about n in all: received blocks, until they are added in order.
 * Rounding  in the order of devices 0, 1, .., P-1, not of arrival.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 3:     0 -b1-> 1   0 -b2-> 2   1 -b0-> 0   1 -b2-> 2   2 -b0-> 0   2 -b1-> 1
 */
#include "emulated_devices/collectives/algorithm.h"

static void exchange_all(struct exchange *exchange, const struct collective *collective, void *scratch,
                         struct message *message)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    const int64_t own = block_length(collective, P, r);
    for (int k = 1; k < P; k++) {
        /* All messages are under way at once; the parts that arrive are added in the order of ranks afterwards. */
        const int to = imod(r + k, P), from = imod(r - k, P);
        message[2 * k - 2] = message_receive_to_look(exchange, from, element(collective, scratch, own * from),
                                                     bytes_of(collective, own));
        message[2 * k - 1] = message_send(exchange, to, const_block(collective, collective->in, P, to),
                                          bytes_of(collective, block_length(collective, P, to)));
    }
}

/* out [block r] = sum over members of in's block r, added in the order of members. */
static enum error_code direct_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    const int64_t own = block_length(collective, P, r);
    struct exchange x = exchange_begin(group, REDUCE_SCATTER);
    void *blocks;
    enum error_code code = scratch_agreed(&x, collective, P * own, &blocks, err);
    if (code != OK) return code;
    struct message *m = message_list(&x, 2 * P);
    exchange_all(&x, collective, blocks, m);
    code = add_in_order(&x, collective, r, P, m, const_block(collective, collective->in, P, r), blocks,
                        collective->out, own, err);
    if (code == OK) reduce_finish(&x, collective->reduction, collective->dtype, collective->out, own);
    exchange_small_end(&x, m);
    exchange_release(&x, blocks);
    return code;
}

static struct collective_cost direct_cost(int r, int P, const struct collective *collective)
{
    const int64_t own = block_length(collective, P, r);
    return (struct collective_cost){ .messages = (uint64_t)(P - 1),
                                    .bytes = bytes_of(collective, block_total(collective, P) - own),
                                     .additions = (uint64_t)((P - 1) * own), .steps = (uint64_t)(P - 1), .depth = 1 };
}

const struct algorithm reduce_scatter_direct = {
    .operation = REDUCE_SCATTER, .name = "direct", .description = "each block directly to its owner, all at once",
    .order = BY_RANK, .source = "TensorRT-LLM custom all-reduce", .cost_formula = "a + n(P-1)/P b", .run = direct_run,
    .cost = direct_cost, .turns = turns_with_equal_blocks,
};
