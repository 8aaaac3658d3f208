/* alltoall, linear: all messages at once.
 *
 * Source    the basic algorithm of MPI libraries; what NCCL's grouped sends and receives do
 * Needs     any P, any counts.
 * Cost      steps  1 where a device can send to all at once; P-1 through one port;  bytes  all but the own block
 * Memory    the list of messages; in place a copy of the vector, because a block may arrive before any was sent.
 * Rounding  permutes: bits are equal.
 *
 *     all receives are posted, then all sends, each device beginning with the one after it
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code all_at_once(struct exchange *x, const struct collective *c, struct error *err)
{
    const int P = x->group->size, r = x->group->rank;
    struct message *m = message_list(x, 2 * P);
    keep_own(x, c);
    for (int k = 1; k < P; k++) {
        /* Receives are posted first: a message that comes early has a place. */
        const int from = imod(r - k, P);
        m[k - 1] = message_receive(x, from, algorithm_taken(c, from), bytes_of(c, taken_from(c, from)));
    }
    for (int k = 1; k < P; k++) {
        const int to = imod(r + k, P);
        m[P - 2 + k] = message_send(x, to, algorithm_given(c, to), bytes_of(c, given_to(c, to)));
    }
    const enum error_code code = wait_all(x, m, 2 * P - 2, err);
    exchange_small_end(x, m);
    return code;
}

static enum error_code run(struct group *g, const struct collective *asked, struct error *err)
{
    struct exchange x = exchange_begin(g, ALLTOALL);
    struct collective c = *asked;
    int64_t in, out;
    void *copy;
    collective_extents(ALLTOALL, &c, g->rank, g->size, &in, &out);
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

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1), .depth = 1 };
    for (int d = 0; d < P; d++) if (d != r) cost_send(&cost, c, given_to(c, d));
    return cost;
}

const struct algorithm alltoall_linear = {
    .operation = ALLTOALL, .name = "linear", .description = "everything at once",
    .source = "NCCL grouped send and receive", .cost_formula = "a + n(P-1)/P b", .run = run, .cost = cost,
    .turns = turns_with_equal_counts,
};
