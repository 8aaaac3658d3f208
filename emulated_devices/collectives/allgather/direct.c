/* allgather, direct: every device sends its block to all others at once.
 *
 * Source    the second half of the two-shot all-reduce of TensorRT-LLM and vLLM; MPI libraries call it linear
 * Needs     any P, any counts.
 * Cost      steps  1 where a device can send to all at once; P-1 through one port;  bytes  (P-1)|b(r)|
 * Memory    none but the list of messages.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 3:     0 -b0-> 1, 2      1 -b1-> 0, 2      2 -b2-> 0, 1
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code allgather_direct_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, ALLGATHER);
    struct message *m = message_list(&x, 2 * P);
    copy_elements(&x, collective, block(collective, collective->out, P, r), collective->in,
                  block_length(collective, P, r));
    for (int k = 1; k < P; k++) {
        /* In the k-th place every device sends to another one, so no port gets all messages first. */
        const int to = imod(r + k, P), from = imod(r - k, P);
        m[2 * k - 2] = message_receive(&x, from, block(collective, collective->out, P, from),
                                       bytes_of(collective, block_length(collective, P, from)));
        m[2 * k - 1] = message_send(&x, to, block(collective, collective->out, P, r),
                                    bytes_of(collective, block_length(collective, P, r)));
    }
    const enum error_code code = wait_all(&x, m, 2 * P - 2, err);
    exchange_small_end(&x, m);
    return code;
}

static struct collective_cost allgather_direct_cost(int r, int P, const struct collective *collective)
{
    return (struct collective_cost){ .messages = (uint64_t)(P - 1),
                                     .bytes = bytes_of(collective, (P - 1) * block_length(collective, P, r)),
                                     .steps = (uint64_t)(P - 1),
                                     .depth = 1 };
}

const struct algorithm allgather_direct = {
    .operation = ALLGATHER, .name = "direct", .description = "each block to everybody at once",
    .source = "TensorRT-LLM custom all-reduce", .cost_formula = "a + n(P-1)/P b", .run = allgather_direct_run,
    .cost = allgather_direct_cost, .turns = turns_with_equal_blocks,
};
