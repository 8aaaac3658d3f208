/* scan, doubling: in every step a device's sum covers twice as many devices to its left.
 *
 * Source    W. D. Hillis, G. L. Steele, "Data parallel algorithms", CACM 29(12), 1986, doi:10.1145/7902.7903
 * Needs     any P, any count; inclusive or exclusive.
 * Cost      steps  ceil(log2 P);  bytes  n in every step with a receiver;  adds  n for each sum received
 *           (exclusive: n more for each after the first, for the sum without the device's own vector)
 * Memory    the vector twice; four times if exclusive.
 * Rounding  the sum received from the left is the left operand.
 *
 * P = 4:      x0      x1      x2      x3
 *   by 1      x0      x01     x12     x23
 *   by 2      x0      x01     x012    x0123
 */
#include "emulated_devices/collectives/algorithm.h"

/* Buffers are swapped instead of copied. */
struct sums { void *mine, *theirs, *before, *spare; bool some; };

static void swap(void **a, void **b)
{
    void *t = *a;
    *a = *b;
    *b = t;
}

/* The received sum covers the devices just before those of `mine`. */
static void take_in(struct exchange *x, const struct collective *c, struct sums *s)
{
    if (c->exclusive) {
        copy_elements(x, c, s->spare, s->theirs, c->count);
        if (s->some) reduce_local(x, c->reduction, c->dtype, s->spare, s->before, c->count);
        swap(&s->spare, &s->before);
        s->some = true;
    }
    reduce_local(x, c->reduction, c->dtype, s->theirs, s->mine, c->count);
    swap(&s->theirs, &s->mine);
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    const uint64_t bytes = bytes_of(c, c->count);
    struct exchange x = exchange_begin(g, SCAN);
    void *memory;
    enum error_code code = scratch_agreed(&x, c, (c->exclusive ? 4 : 2) * c->count, &memory, err);
    if (code != OK) return code;
    struct sums s = { .mine = memory,
                      .theirs = element(c, memory, c->count),
                      .before = element(c, memory, 2 * c->count),
                      .spare = element(c, memory, 3 * c->count) };

    copy_elements(&x, c, s.mine, c->in, c->count);
    for (int distance = 1; distance < P && code == OK; distance *= 2) {
        const int to = r + distance < P ? r + distance : -1, from = r - distance >= 0 ? r - distance : -1;
        code = exchange_both(&x, to, s.mine, bytes, from, s.theirs, bytes, err);
        if (code == OK && from >= 0) take_in(&x, c, &s);
    }
    if (code == OK && !(c->exclusive && r == 0)) {
        copy_elements(&x, c, c->out, c->exclusive ? s.before : s.mine, c->count);
        reduce_finish(&x, c->reduction, c->dtype, c->out, c->count);
    }
    exchange_release(&x, memory);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .steps = (uint64_t)ceil_log2(P) };
    for (int distance = 1; distance < P; distance *= 2) {
        if (r + distance < P) cost_send(&cost, c, c->count);
        if (r - distance >= 0) cost.additions += (uint64_t)(c->exclusive && distance > 1 ? 2 * c->count : c->count);
    }
    return cost;
}

const struct algorithm scan_doubling = {
    .operation = SCAN, .name = "doubling",
    .description = "sums reach 1, 2, 4, .. devices to the left: the fewest steps",
    .order = BY_TREE, .source = "Hillis and Steele 1986, doi:10.1145/7902.7903",
    .cost_formula = "ceil(log2 P) (a + n b)", .run = run, .cost = cost,
};
