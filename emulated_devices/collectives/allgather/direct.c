/* allgather, direct: every device sends its block to all others at once.
 *
 * Source    the second half of the two-shot all-reduce of TensorRT-LLM and vLLM; MPI libraries call it linear
 * Needs     any P, any counts.
 * Cost      steps  1 where a device can send to all at once; P-1 through one port;  bytes  (P-1)|b(r)|
 * Memory    none but the list of messages.
 * Rounding  permutes: bits are equal.
 *
 * P = 3:     0 -b0-> 1, 2      1 -b1-> 0, 2      2 -b2-> 0, 1
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    struct exchange x = exchange_begin(g, ALLGATHER);
    struct message *m = message_list(&x, 2 * P);
    copy_elements(&x, c, block(c, c->out, P, r), c->in, block_length(c, P, r));
    for (int k = 1; k < P; k++) {
        /* In the k-th place every device sends to another one, so no port gets all messages first. */
        const int to = imod(r + k, P), from = imod(r - k, P);
        m[2 * k - 2] = message_receive(&x, from, block(c, c->out, P, from), bytes_of(c, block_length(c, P, from)));
        m[2 * k - 1] = message_send(&x, to, block(c, c->out, P, r), bytes_of(c, block_length(c, P, r)));
    }
    const enum error_code code = wait_all(&x, m, 2 * P - 2, err);
    exchange_small_end(&x, m);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    return (struct collective_cost){ .messages = (uint64_t)(P - 1),
                                     .bytes = bytes_of(c, (P - 1) * block_length(c, P, r)),
                                     .steps = (uint64_t)(P - 1),
                                     .depth = 1 };
}

const struct algorithm allgather_direct = {
    .operation = ALLGATHER, .name = "direct", .description = "each block to everybody at once",
    .source = "TensorRT-LLM custom all-reduce", .cost_formula = "a + n(P-1)/P b", .run = run,
    .cost = cost, .turns = turns_with_equal_blocks,
};
