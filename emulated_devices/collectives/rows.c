/* rows.c -- rings and one-step sums among some members of a group.
 *
 * The all-reduces one_shot, multiplying, two_level and torus_2d call this file through algorithm.h.  Functions that
 * send return ERR_COMM, and the buffer is then undefined.
 */
#include "emulated_devices/collectives/algorithm.h"

/* One turn of the ring: in every step, send a block to the right and receive the block before it from the left. */
static enum error_code rows_turn(struct exchange *exchange, const struct collective *collective, struct row row,
                                 char *data, int64_t n, int first_give, void *scratch, struct error *err)
{
    enum error_code code = OK;
    for (int step = 0; step < row.size - 1 && code == OK; step++) {
        const int give = imod(first_give - step, row.size), take = imod(give - 1, row.size);
        void *mine = element(collective, data, block_start(n, row.size, take));
        const int64_t taking = part_length(n, row.size, take);
        const void *given = element(collective, data, block_start(n, row.size, give));
        const int64_t giving = part_length(n, row.size, give);
        const int right = row_member(row, row.me + 1), left = row_member(row, row.me - 1);
        /* With scratch a turn is a reduce-scatter and adds; without scratch a turn is an all-gather and receives at
         * the block's place. */
        code = scratch != NULL
                   ? send_and_add(exchange, collective, right, given, giving, left, scratch, mine, taking, err)
                   : exchange_both(exchange, right, given, bytes_of(collective, giving), left, mine,
                                   bytes_of(collective, taking), err);
    }
    return code;
}

enum error_code ring_reduce_scatter(struct exchange *exchange, const struct collective *collective, struct row row,
                                    void *data, int64_t n, void *scratch, struct error *err)
{
    return rows_turn(exchange, collective, row, data, n, row.me, scratch, err);
}

enum error_code ring_allgather(struct exchange *exchange, const struct collective *collective, struct row row,
                               void *data, int64_t n, struct error *err)
{
    return rows_turn(exchange, collective, row, data, n, row.me + 1, NULL, err);
}

/* All blocks but one are sent: reduce-scatter keeps the one that ends here, allgather the one received last. */
void ring_cost(struct collective_cost *cost, const struct collective *collective, struct row row, int64_t n,
               bool reduces)
{
    if (row.size == 1) return;
    cost->messages += (uint64_t)(row.size - 1);
    cost->steps += (uint64_t)(row.size - 1);
    cost->bytes += bytes_of(collective, n - part_length(n, row.size, row.me + (reduces ? 1 : 2)));
    if (reduces) cost->additions += (uint64_t)(n - part_length(n, row.size, row.me));
}

/* x = x0 + x1 + .. in the order of the row, on every member of it. */
enum error_code everybody_adds(struct exchange *exchange, const struct collective *collective, struct row row,
                               void *data, int64_t n, void *scratch, struct error *err)
{
    enum error_code code;
    struct message *m = message_list(exchange, 2 * row.size);
    for (int k = 1; k < row.size; k++) {
        /* Member k places before is received as message 2k - 2, and the send to k places after is 2k - 1:
         * add_in_order needs this numbering. */
        const int from = imod(row.me - k, row.size);
        m[2 * k - 2] = message_receive_to_look(exchange, row_member(row, from), element(collective, scratch, n * from),
                                               bytes_of(collective, n));
        m[2 * k - 1] = message_send(exchange, row_member(row, row.me + k), data, bytes_of(collective, n));
    }
    code = add_in_order(exchange, collective, row.me, row.size, m, data, scratch, data, n, err);
    exchange_small_end(exchange, m);
    return code;
}

void everybody_cost(struct collective_cost *cost, const struct collective *collective, struct row row, int64_t n)
{
    cost->messages += (uint64_t)(row.size - 1);
    cost->steps += (uint64_t)(row.size - 1);
    cost->bytes += (uint64_t)(row.size - 1) * bytes_of(collective, n);
    cost->additions += (uint64_t)((row.size - 1) * n);
    cost->depth++;
}
