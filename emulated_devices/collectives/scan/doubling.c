/* scan, doubling: in every step a device's sum covers twice as many devices to its left.
 *
 * Source    W. D. Hillis, G. L. Steele, "Data parallel algorithms", CACM 29(12), 1986, doi:10.1145/7902.7903
 * Needs     any P, any count; inclusive or exclusive.
 * Cost      steps  ceil(log2 P);  bytes  n in every step with a receiver;  adds  n for each sum received
 *           (exclusive: n more for each after the first, for the sum without the device's own vector)
 * Memory    the vector twice; four times if exclusive.
 * Rounding  the sum received from the left is the left operand.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
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
static void take_in(struct exchange *exchange, const struct collective *collective, struct sums *sums)
{
    if (collective->exclusive) {
        copy_elements(exchange, collective, sums->spare, sums->theirs, collective->count);
        if (sums->some) reduce_local(exchange, collective->reduction, collective->dtype, sums->spare, sums->before,
                                     collective->count);
        swap(&sums->spare, &sums->before);
        sums->some = true;
    }
    reduce_local(exchange, collective->reduction, collective->dtype, sums->theirs, sums->mine, collective->count);
    swap(&sums->theirs, &sums->mine);
}

/* out [count] = x0 + .. + xr; if exclusive, x0 + .. + x(r-1).  `mine` covers twice as many members after each step. */
static enum error_code scan_doubling_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    const uint64_t bytes = bytes_of(collective, collective->count);
    struct exchange x = exchange_begin(group, SCAN);
    void *memory;
    enum error_code code = scratch_agreed(&x, collective, (collective->exclusive ? 4 : 2) * collective->count,
                                          &memory, err);
    if (code != OK) return code;
    struct sums s = { .mine = memory,
                      .theirs = element(collective, memory, collective->count),
                      .before = element(collective, memory, 2 * collective->count),
                      .spare = element(collective, memory, 3 * collective->count) };

    copy_elements(&x, collective, s.mine, collective->in, collective->count);
    for (int distance = 1; distance < P && code == OK; distance *= 2) {
        const int to = r + distance < P ? r + distance : -1, from = r - distance >= 0 ? r - distance : -1;
        code = exchange_both(&x, to, s.mine, bytes, from, s.theirs, bytes, err);
        if (code == OK && from >= 0) take_in(&x, collective, &s);
    }
    if (code == OK && !(collective->exclusive && r == 0)) {
        copy_elements(&x, collective, collective->out, collective->exclusive ? s.before : s.mine, collective->count);
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, collective->count);
    }
    exchange_release(&x, memory);
    return code;
}

static struct collective_cost scan_doubling_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)ceil_log2(P) };
    for (int distance = 1; distance < P; distance *= 2) {
        if (r + distance < P) cost_send(&cost, collective, collective->count);
        if (r - distance >= 0) cost.additions += (uint64_t)(collective->exclusive && distance > 1
                                                            ? 2 * collective->count : collective->count);
    }
    return cost;
}

const struct algorithm scan_doubling = {
    .operation = SCAN, .name = "doubling",
    .description = "sums reach 1, 2, 4, .. devices to the left: the fewest steps",
    .order = BY_TREE, .source = "Hillis and Steele 1986, doi:10.1145/7902.7903",
    .cost_formula = "ceil(log2 P) (a + n b)", .vectors = 2, .run = scan_doubling_run, .cost = scan_doubling_cost,
};
