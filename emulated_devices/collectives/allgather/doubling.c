/* allgather, recursive doubling: devices at distance 1, 2, 4, .. exchange all blocks that they have.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P (for other P members are folded: they send their block and receive the result), any counts.
 * Cost      steps  log2 P; 2 more if P is not a power of two
 *           bytes  all its blocks in every step: n(P-1)/P for a power of two;  n more for a device that works for two
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 4:     0       1       2       3
 *   by 1     b0 b1   b0 b1   b2 b3   b2 b3
 *   by 2     all     all     all     all
 */
#include "emulated_devices/collectives/algorithm.h"

/* out [all blocks] = every member's block, each at its own place from the beginning. */
static enum error_code doubling_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    const struct cut k = { .P = P, .f = fold_of(r, P) };
    struct collective whole = *collective;
    struct exchange x = exchange_begin(group, ALLGATHER);
    enum error_code code = OK;
    whole.count = block_total(collective, P);

    copy_elements(&x, collective, block(collective, collective->out, P, r), collective->in,
                  block_length(collective, P, r));
    /* P is no power of two: the first devices in pairs give their blocks to a neighbour, who works for both. */
    if (k.f.me < 0)
        code = exchange_both(&x, r + 1, block(collective, collective->out, P, r),
                             bytes_of(collective, block_length(collective, P, r)), -1, NULL, 0, err);
    else if (k.f.me < k.f.rest)
        code = exchange_both(&x, -1, NULL, 0, r - 1, block(collective, collective->out, P, r - 1),
                             bytes_of(collective, block_length(collective, P, r - 1)), err);
    /* Then blocks double at distance 1, 2, 4, ..; those who gave theirs get all of them at the end. */
    if (k.f.me >= 0 && code == OK) code = doubling_allgather(&x, &whole, k, collective->out, err);
    return code == OK ? fold_out(&x, &whole, k.f, collective->out, err) : code;
}

static struct collective_cost allgather_doubling_cost(int r, int P, const struct collective *collective)
{
    const struct cut k = { .P = P, .f = fold_of(r, P) };
    struct collective whole = *collective;
    struct collective_cost cost = { .steps = k.f.rest > 0 ? 2 : 0 };
    whole.count = block_total(collective, P);
    if (k.f.me < 0) cost_send(&cost, collective, block_length(collective, P, r));
    else if (k.f.me < k.f.rest) cost_send(&cost, collective, whole.count);
    halving_cost(&cost, &whole, k, false);
    fold_path(&cost, collective, k.f, block_length(collective, P, r - 1));
    return cost;
}

const struct algorithm allgather_doubling = {
    .operation = ALLGATHER, .name = "doubling", .description = "exchange all one has at distance 1, 2, 4, ..",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "log2 P a + n(P-1)/P b", .run = doubling_run, .cost = allgather_doubling_cost,
};
