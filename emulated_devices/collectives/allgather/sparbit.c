/* allgather, Sparbit: distant partners first, one message per block, so that nothing is packed or rotated.
 *
 * Source    W. Loch, G. Koslovski, "Sparbit: a new logarithmic-cost and data locality-aware MPI allgather algorithm",
 *           arXiv:2109.08751; in Open MPI's coll_base_allgather.c
 * Needs     any P, any counts.
 * Idea      the trees of allgather/pat.c, but every block is sent from its place directly into its place.
 * Cost      rounds  ceil(log2 P) of dependent messages; messages P-1;  bytes  all blocks but one: n(P-1)/P
 * Memory    none but the list of messages.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5, from device r:   bit 4: b(r) to r+4      bit 2: b(r) to r+2      bit 1: b(r) and b(r-2) to r+1, two messages
 */
#include "emulated_devices/collectives/algorithm.h"

/* Blocks that go to the device `bit` further on in this step: r, r - 2bit, .. */
static int blocks_in(int bit, int P) { return (P - 1 - bit) / (2 * bit) + 1; }

/* A step at the distance `bit`: all receives and sends of its blocks are under way at once. */
static enum error_code sparbit_step(struct exchange *exchange, const struct collective *collective, int bit,
                                    struct message *message, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank, many = blocks_in(bit, P);
    for (int i = 0; i < many; i++) {
        const int give = imod(r - 2 * bit * i, P), take = imod(r - bit - 2 * bit * i, P);
        /* Each block is a message of its own, read and written at its place. */
        message[2 * i] =
            message_receive(exchange, imod(r - bit, P), block(collective, collective->out, P, take),
                            bytes_of(collective, block_length(collective, P, take)));
        message[2 * i + 1] =
            message_send(exchange, imod(r + bit, P), block(collective, collective->out, P, give),
                         bytes_of(collective, block_length(collective, P, give)));
    }
    return wait_all(exchange, message, 2 * many, err);
}

static enum error_code sparbit_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, ALLGATHER);
    struct message *messages = message_list(&x, 2 * P);
    enum error_code code = OK;
    copy_elements(&x, collective, block(collective, collective->out, P, r), collective->in,
                  block_length(collective, P, r));
    for (int bit = 1 << (ceil_log2(P) - 1); bit >= 1 && code == OK; bit /= 2)
        code = sparbit_step(&x, collective, bit, messages, err);
    exchange_small_end(&x, messages);
    return code;
}

static struct collective_cost sparbit_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1), .depth = (uint64_t)ceil_log2(P) };
    for (int bit = 1; bit < P; bit *= 2)
        for (int i = 0; i < blocks_in(bit, P); i++)
            cost_send(&cost, collective, block_length(collective, P, r - 2 * bit * i));
    return cost;
}

const struct algorithm allgather_sparbit = {
    .operation = ALLGATHER, .name = "sparbit",
    .description = "far partners first, every block its own message, nothing packed",
    .source = "Loch and Koslovski 2021, arXiv:2109.08751", .cost_formula = "ceil(log2 P) a + n(P-1)/P b",
        .run = sparbit_run,
    .cost = sparbit_cost,
};
