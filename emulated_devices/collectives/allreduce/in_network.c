/* allreduce, in the network: each device sends its vector once, the switches add, and the sum comes down once.
 *
 * Source    R. L. Graham et al., "Scalable Hierarchical Aggregation Protocol (SHArP): a hardware architecture for
 *           efficient data reduction", COMHPC 2016; NCCL's CollNet and NVLS do it on InfiniBand and NVLink
 * Needs     links that reduce ("reduces" in a cluster's file) directly between all members; any P, any count.
 * Cost      steps  1: up and down at the same time, as the switches pass on what they have added
 *           bytes  n up and n down, however many members there are: the ring sends 2n(P-1)/P
 *           adds   none on a device
 * Memory    n elements of scratch, a little more if P does not divide n.
 * Rounding  in the order of devices 0, 1, .., P-1; one sum, computed once.  Real switches add along their tree.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * The switches are emulated: messages that take no virtual time bring the numbers to the members, which add for them.
 * A vector goes up when the last member has come, since a switch has room for little.  Then each device's port sends n
 * bytes and receives n: the message to the next member stands for both.  All go at the pace of the slowest, so that
 * they end together.
 *
 *     0 --n-->         --n--> 0
 *     1 --n-->  switch --n--> 1       time: a latency and n bytes, from when the last one comes
 *     2 --n-->         --n--> 2
 */
#include "emulated_devices/collectives/algorithm.h"

/* Block b of the vector, in elements. */
static void *in_network_block(const struct exchange *exchange, const struct collective *collective, void *data, int b)
{
    return element(collective, data, block_start(collective->count, exchange->group->size, b));
}

/* Each member adds one block for the switches, in the order of members, behind the others' parts in its scratch. */
static enum error_code in_network_add(struct exchange *exchange, const struct collective *collective, void *parts,
                                      struct message *message, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    const int64_t own = part_length(collective->count, P, r);
    void *const sum = element(collective, parts, own * r);
    const void *part[REDUCE_MOST];
    for (int k = 1; k < P; k++) {
        /* Block `to` of the input goes to the member that adds it; parts of the own block arrive. */
        const int to = imod(r + k, P), from = imod(r - k, P);
        message[2 * k - 2] = message_receive(exchange, from, element(collective, parts, own * from),
                                             bytes_of(collective, own));
        message[2 * k - 1] = message_send(exchange, to,
                                          const_element(collective, collective->in,
                                                        block_start(collective->count, P, to)),
                                          bytes_of(collective, part_length(collective->count, P, to)));
    }
    const enum error_code code = wait_all(exchange, message, 2 * P - 2, err);
    if (code != OK) return code;
    /* The sum is in the place that no message fills; after the first round it is the first part. */
    for (int i = 0; i < P;) {
        int count = 0;
        if (i > 0) part[count++] = sum;
        for (; count < REDUCE_MOST && i < P; i++)
            part[count++] = i == r ? const_element(collective, collective->in, block_start(collective->count, P, r))
                                   : element(collective, parts, own * i);
        reduce_numbers_of(exchange, collective->reduction, collective->dtype, sum, part, count, own);
    }
    reduce_finish(exchange, collective->reduction, collective->dtype, sum, own);
    return OK;
}

/* All sums come to all members, this device's own from its scratch. */
static enum error_code in_network_give(struct exchange *exchange, const struct collective *collective, void *parts,
                                       struct message *message, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    const int64_t own = part_length(collective->count, P, r);
    const void *const sum = element(collective, parts, own * r);
    for (int k = 1; k < P; k++) {
        const int from = imod(r - k, P);
        message[2 * k - 2] = message_receive(exchange, from, in_network_block(exchange, collective, collective->out,
                                                                              from),
                                             bytes_of(collective, part_length(collective->count, P, from)));
        message[2 * k - 1] = message_send(exchange, imod(r + k, P), sum, bytes_of(collective, own));
    }
    reduce_numbers_of(exchange, collective->reduction, collective->dtype,
                      in_network_block(exchange, collective, collective->out, r), &sum, 1, own);
    return wait_all(exchange, message, 2 * P - 2, err);
}

/* When each member comes, and the number of its next message. */
struct arrival { picoseconds at; uint64_t sent; };

/* Wait until the last member has come: before the message that stands for the vectors, or after it. */
static enum error_code in_network_meet(struct exchange *exchange, struct message *message, bool after,
                                       struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    struct clock *clock = &exchange->group->comm->device->clock;
    struct arrival *all = exchange_small(exchange, sizeof *all * (uint64_t)P);
    all[r] = (struct arrival){ clock->now, clock->sent };
    for (int k = 1; k < P; k++) {
        const int from = imod(r - k, P);
        message[2 * k - 2] = message_receive(exchange, from, &all[from], sizeof *all);
        message[2 * k - 1] = message_send(exchange, imod(r + k, P), &all[r], sizeof *all);
    }
    const enum error_code code = wait_all(exchange, message, 2 * P - 2, err);
    picoseconds last = clock->now;
    for (int i = 0; i < P && code == OK; i++) last = all[i].at > last ? all[i].at : last;
    clock->label = (uint8_t)exchange->group->kind;
    const struct meeting meeting = { exchange->group->member[0], (uint32_t)all[0].sent - after, after, P };
    if (code == OK) clock_meet(clock, last, meeting);
    exchange_small_end(exchange, all);
    return code;
}

/* Nothing of this takes virtual time but waiting for the last member. */
static enum error_code in_network_switches(struct group *group, const struct collective *collective, void *parts,
                                           struct error *err)
{
    struct exchange x = exchange_begin(group, CONTROL);
    struct message *m = message_list(&x, 2 * group->size);
    enum error_code code = in_network_add(&x, collective, parts, m, err);
    if (code == OK) code = in_network_give(&x, collective, parts, m, err);
    if (code == OK) code = in_network_meet(&x, m, false, err);
    exchange_small_end(&x, m);
    return code;
}

static enum error_code in_network_end(struct group *group, struct error *err)
{
    struct exchange x = exchange_begin(group, CONTROL);
    struct message *m = message_list(&x, 2 * group->size);
    const enum error_code code = in_network_meet(&x, m, true, err);
    exchange_small_end(&x, m);
    return code;
}

/* out [count] = sum over members, which no device computes. */
static enum error_code in_network_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    const uint64_t bytes = bytes_of(collective, collective->count);
    const int64_t parts = P * part_length(collective->count, P, 0);
    void *scratch;
    struct exchange x = exchange_begin(group, ALLREDUCE);
    enum error_code code = scratch_agreed(&x, collective, parts, &scratch, err);
    /* A rehearsal only counts what is charged. */
    if (code == OK && group->comm->rehearsal == NULL) code = in_network_switches(group, collective, scratch, err);
    /* Every member has the sum already; this message has the time of the real ones. */
    if (code == OK)
        code = exchange_both(&x, imod(r + 1, P), collective->out, bytes, imod(r - 1, P), scratch, bytes, err);
    if (code == OK && group->comm->rehearsal == NULL) code = in_network_end(group, err);
    if (group->comm->rehearsal == NULL) clock_made(&group->comm->device->clock, collective->out, bytes);
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost in_network_cost(int r, int P, const struct collective *collective)
{
    (void)r, (void)P;
    return (struct collective_cost){ .messages = 1, .bytes = bytes_of(collective, collective->count), .steps = 1,
                                     .depth = 1 };
}

static const char *in_network_refuses(int P, const struct collective *collective)
{
    (void)P;
    return collective->nodes.reduces ? NULL : "links that reduce directly between all members";
}

const struct algorithm allreduce_in_network = {
    .operation = ALLREDUCE, .name = "in_network",
    .description = "switches add: each vector goes up once, the sum comes down once",
    .needs = "links that reduce directly between all members", .refuses = in_network_refuses,
    .order = BY_RANK, .reads_in = true, .source = "Graham et al. 2016 (SHARP)",
    .cost_formula = "a + n b", .run = in_network_run, .cost = in_network_cost, .turns = turns_with_equal_parts,
};
