/* alltoall, linear: all messages at once.
 *
 * Source    the basic algorithm of MPI libraries; what NCCL's grouped sends and receives do
 * Needs     any P, any counts.
 * Cost      steps  1 where a device can send to all at once; P-1 through one port;  bytes  all but the own block
 * Memory    the list of messages; in place a copy of the vector, because a block may arrive before any was sent.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     all receives are posted, then all sends, each device beginning with the one after it
 */
#include "emulated_devices/collectives/algorithm.h"

/* All receives are posted, then all sends; the own block is copied. */
static enum error_code all_at_once(struct exchange *exchange, const struct collective *collective, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    struct message *m = message_list(exchange, 2 * P);
    keep_own(exchange, collective);
    for (int k = 1; k < P; k++) {
        /* Receives are posted first: a message that comes early has a place. */
        const int from = imod(r - k, P);
        m[k - 1] = message_receive(exchange, from, algorithm_taken(collective, from),
                                   bytes_of(collective, taken_from(collective, from)));
    }
    for (int k = 1; k < P; k++) {
        const int to = imod(r + k, P);
        m[P - 2 + k] = message_send(exchange, to, algorithm_given(collective, to),
                                    bytes_of(collective, given_to(collective, to)));
    }
    const enum error_code code = wait_all(exchange, m, 2 * P - 2, err);
    exchange_small_end(exchange, m);
    return code;
}

static enum error_code alltoall_linear_run(struct group *group, const struct collective *asked, struct error *err)
{
    struct exchange x = exchange_begin(group, ALLTOALL);
    struct collective c = *asked;
    int64_t in, out;
    void *copy;
    collective_extents(ALLTOALL, &c, group->rank, group->size, &in, &out);
    const bool in_place = c.in == c.out;
    enum error_code code = scratch_agreed(&x, &c, in_place ? in : 0, &copy, err);
    if (code != OK) return code;
    /* If in == out, a received block would overwrite one that is not sent yet: the input is copied first. */
    if (in_place) {
        copy_elements(&x, &c, copy, c.in, in);
        c.in = copy;
    }
    code = all_at_once(&x, &c, err);
    exchange_release(&x, copy);
    return code;
}

static struct collective_cost alltoall_linear_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1), .depth = 1 };
    for (int d = 0; d < P; d++) if (d != r) cost_send(&cost, collective, given_to(collective, d));
    return cost;
}

const struct algorithm alltoall_linear = {
    .operation = ALLTOALL, .name = "linear", .description = "everything at once",
    .source = "NCCL grouped send and receive", .cost_formula = "a + n(P-1)/P b", .run = alltoall_linear_run,
        .cost = alltoall_linear_cost,
    .turns = turns_with_equal_counts,
};
