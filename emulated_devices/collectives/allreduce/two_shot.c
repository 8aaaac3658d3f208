/* allreduce, two shots: each device sums one block, then sends it to all others.
 *
 * Source    TensorRT-LLM and vLLM use it for middle sizes inside a node (custom all-reduce kernels)
 * Needs     any P, any count; blocks may be empty.
 * Cost      steps  2 where a device can send to all at once; 2(P-1) through one port
 *           bytes  n - |b(r)| in the first shot, (P-1)|b(r)| in the second: about 2n(P-1)/P, as few as the ring
 *           adds   (P-1)|b(r)|
 * Memory    P blocks of scratch, about n in all: the others' parts of this device's block, until they are added in
 *           order.
 * Rounding  block b is added by device b alone, in the order of devices 0, 1, .., P-1: the same bits on all.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 3:     first   0 -b1-> 1   0 -b2-> 2   1 -b0-> 0   1 -b2-> 2   2 -b0-> 0   2 -b1-> 1
 *            second  0 -b0-> 1,2             1 -b1-> 0,2             2 -b2-> 0,1
 */
#include "emulated_devices/collectives/algorithm.h"

static struct message two_shot_give(struct exchange *exchange, const struct collective *collective, int to,
                                    const void *from, int b)
{
    const int P = exchange->group->size;
    return message_send(exchange, to, const_element(collective, from, block_start(collective->count, P, b)),
                        bytes_of(collective, part_length(collective->count, P, b)));
}

/* Send each device its block, and add those for this one. */
static enum error_code first_shot(struct exchange *exchange, const struct collective *collective, void *blocks,
                                  struct message *message, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    const int64_t own = part_length(collective->count, P, r);
    for (int k = 1; k < P; k++) {
        /* Block `to` of the input goes to its owner; P - 1 parts of the own block arrive. */
        const int to = imod(r + k, P), from = imod(r - k, P);
        message[2 * k - 2] = message_receive_to_look(exchange, from, element(collective, blocks, own * from),
                                                     bytes_of(collective, own));
        message[2 * k - 1] = two_shot_give(exchange, collective, to, collective->in, to);
    }
    return add_in_order(exchange, collective, r, P, message,
                        const_element(collective, collective->in, block_start(collective->count, P, r)), blocks,
                        element(collective, collective->out, block_start(collective->count, P, r)), own, err);
}

/* Send each device the sum, and receive its in its place. */
static enum error_code second_shot(struct exchange *exchange, const struct collective *collective,
                                   struct message *message, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    for (int k = 1; k < P; k++) {
        /* The complete own block goes to everybody. */
        const int from = imod(r - k, P);
        message[2 * k - 2] = message_receive(exchange, from, element(collective, collective->out,
                                                                     block_start(collective->count, P, from)),
                                             bytes_of(collective, part_length(collective->count, P, from)));
        message[2 * k - 1] = two_shot_give(exchange, collective, imod(r + k, P), collective->out, r);
    }
    return wait_all(exchange, message, 2 * P - 2, err);
}

/* out [count] = sum over members: each device sums its block, then sends it to all. */
static enum error_code two_shot_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    const int64_t own = part_length(collective->count, P, r);
    void *scratch;
    struct exchange x = exchange_begin(group, ALLREDUCE);
    enum error_code code = scratch_agreed(&x, collective, P * own, &scratch, err);
    struct message *m = code == OK ? message_list(&x, 2 * P) : NULL;
    if (code == OK) code = first_shot(&x, collective, scratch, m, err);
    if (code == OK) {
        reduce_finish(&x, collective->reduction, collective->dtype,
                      element(collective, collective->out, block_start(collective->count, P, r)), own);
        code = second_shot(&x, collective, m, err);
    }
    if (m != NULL) exchange_small_end(&x, m);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost two_shot_cost(int r, int P, const struct collective *collective)
{
    const int64_t own = part_length(collective->count, P, r);
    return (struct collective_cost){ .messages = 2 * (uint64_t)(P - 1),
                                     .bytes = bytes_of(collective, collective->count - own + (P - 1) * own),
                                     .additions = (uint64_t)((P - 1) * own),
                                     .steps = 2 * (uint64_t)(P - 1),
                                     .depth = 2 };
}

const struct algorithm allreduce_two_shot = {
    .operation = ALLREDUCE, .name = "two_shot",
    .description = "one block to each, the sums to everybody: two steps on a full mesh",
    .order = BY_RANK, .reads_in = true, .source = "TensorRT-LLM custom all-reduce",
    .cost_formula = "2 a + 2n(P-1)/P b", .run = two_shot_run, .cost = two_shot_cost, .turns = turns_with_equal_parts,
};
