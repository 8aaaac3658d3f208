/* rows.c -- rings and one-step sums among some members of a group. */
#include "emulated_devices/collectives/algorithm.h"

/* One turn of the ring: in every step, send a block to the right and receive the block before it from the left. */
static enum error_code turn(struct exchange *x, const struct collective *c, struct row w, char *data, int64_t n,
                            int first_give, void *scratch, struct error *err)
{
    enum error_code code = OK;
    for (int step = 0; step < w.size - 1 && code == OK; step++) {
        const int give = imod(first_give - step, w.size), take = imod(give - 1, w.size);
        void *mine = element(c, data, block_start(n, w.size, take));
        const int64_t taking = part_length(n, w.size, take);
        const void *given = element(c, data, block_start(n, w.size, give));
        const int64_t giving = part_length(n, w.size, give);
        const int right = row_member(w, w.me + 1), left = row_member(w, w.me - 1);
        code = scratch != NULL
                   ? send_and_add(x, c, right, given, giving, left, scratch, mine, taking, err)
                   : exchange_both(x, right, given, bytes_of(c, giving), left, mine, bytes_of(c, taking), err);
    }
    return code;
}

enum error_code ring_reduce_scatter(struct exchange *x, const struct collective *c, struct row w, void *data, int64_t n,
                                    void *scratch, struct error *err)
{
    return turn(x, c, w, data, n, w.me, scratch, err);
}

enum error_code ring_allgather(struct exchange *x, const struct collective *c, struct row w, void *data, int64_t n,
                               struct error *err)
{
    return turn(x, c, w, data, n, w.me + 1, NULL, err);
}

/* All blocks but one are sent: reduce-scatter keeps the one that ends here, allgather the one received last. */
void ring_cost(struct collective_cost *cost, const struct collective *c, struct row w, int64_t n, bool reduces)
{
    if (w.size == 1) return;
    cost->messages += (uint64_t)(w.size - 1);
    cost->steps += (uint64_t)(w.size - 1);
    cost->bytes += bytes_of(c, n - part_length(n, w.size, w.me + (reduces ? 1 : 2)));
    if (reduces) cost->additions += (uint64_t)(n - part_length(n, w.size, w.me));
}

enum error_code everybody_adds(struct exchange *x, const struct collective *c, struct row w, void *data, int64_t n,
                               void *scratch, struct error *err)
{
    enum error_code code;
    struct message *m = message_list(x, 2 * w.size);
    for (int k = 1; k < w.size; k++) {
        const int from = imod(w.me - k, w.size);
        m[2 * k - 2] = message_receive_to_look(x, row_member(w, from), element(c, scratch, n * from), bytes_of(c, n));
        m[2 * k - 1] = message_send(x, row_member(w, w.me + k), data, bytes_of(c, n));
    }
    code = add_in_order(x, c, w.me, w.size, m, data, scratch, data, n, err);
    exchange_small_end(x, m);
    return code;
}

void everybody_cost(struct collective_cost *cost, const struct collective *c, struct row w, int64_t n)
{
    cost->messages += (uint64_t)(w.size - 1);
    cost->steps += (uint64_t)(w.size - 1);
    cost->bytes += (uint64_t)(w.size - 1) * bytes_of(c, n);
    cost->additions += (uint64_t)((w.size - 1) * n);
    cost->depth++;
}
