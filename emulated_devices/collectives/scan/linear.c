/* scan, linear: each device adds its vector to the sum from its left and sends the result on.
 *
 * Source    elementary
 * Needs     any P, any count; inclusive or exclusive.
 * Cost      steps  P-1;  bytes  n from all but the last;  adds  n at all but the first (exclusive: nor at the last)
 * Memory    the vector twice: the input may be the output.
 * Rounding  from left to right, as one device would.
 *
 *     0 --x0--> 1 --x0+x1--> 2 --x0+x1+x2--> 3
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    const uint64_t bytes = bytes_of(c, c->count);
    const bool adds = r > 0 && (r < P - 1 || !c->exclusive);
    struct exchange x = exchange_begin(g, SCAN);
    void *before;
    enum error_code code = scratch_agreed(&x, c, 2 * c->count, &before, err);
    if (code != OK) return code;
    void *with = element(c, before, c->count);

    if (r > 0) code = exchange_both(&x, -1, NULL, 0, r - 1, before, bytes, err);
    copy_elements(&x, c, with, r > 0 ? before : c->in, c->count);
    if (adds && code == OK) reduce_local(&x, c->reduction, c->dtype, with, c->in, c->count);
    if (r < P - 1 && code == OK) code = exchange_both(&x, r + 1, with, bytes, -1, NULL, 0, err);
    if (code == OK && !(c->exclusive && r == 0)) {
        copy_elements(&x, c, c->out, c->exclusive ? before : with, c->count);
        reduce_finish(&x, c->reduction, c->dtype, c->out, c->count);
    }
    exchange_release(&x, before);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1) };
    if (r < P - 1) cost_send(&cost, c, c->count);
    if (r > 0 && (r < P - 1 || !c->exclusive)) cost.additions = (uint64_t)c->count;
    return cost;
}

const struct algorithm scan_linear = {
    .operation = SCAN, .name = "linear", .description = "add one's own and pass it on",
    .order = BY_RANK, .source = "the obvious way", .cost_formula = "(P-1) (a + n b)", .run = run, .cost = cost,
};
