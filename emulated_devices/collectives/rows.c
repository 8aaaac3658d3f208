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
        code = exchange_both(x, row_member(w, w.me + 1), element(c, data, block_start(n, w.size, give)),
                             bytes_of(c, part_length(n, w.size, give)), row_member(w, w.me - 1),
                             scratch != NULL ? scratch : mine, bytes_of(c, taking), err);
        if (scratch != NULL && code == OK) reduce_local(x, c->reduction, c->dtype, mine, scratch, taking);
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
        m[2 * k] = message_receive(x, row_member(w, from), element(c, scratch, n * from), bytes_of(c, n));
        m[2 * k + 1] = message_send(x, row_member(w, w.me + k), data, bytes_of(c, n));
    }
    code = wait_all(x, m + 2, 2 * w.size - 2, err);
    exchange_small_end(x, m);
    if (code != OK) return code;
    copy_elements(x, c, element(c, scratch, n * w.me), data, n);
    for (int i = 1; i < w.size; i++) reduce_local(x, c->reduction, c->dtype, scratch, element(c, scratch, n * i), n);
    copy_elements(x, c, data, scratch, n);
    return OK;
}

void everybody_cost(struct collective_cost *cost, const struct collective *c, struct row w, int64_t n)
{
    cost->messages += (uint64_t)(w.size - 1);
    cost->steps += (uint64_t)(w.size - 1);
    cost->bytes += (uint64_t)(w.size - 1) * bytes_of(c, n);
    cost->additions += (uint64_t)((w.size - 1) * n);
    cost->depth++;
}
