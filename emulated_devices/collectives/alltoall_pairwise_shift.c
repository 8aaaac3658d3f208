/* alltoall, pairwise, by shifts: in step k to the device k further on, from the one k before.
 *
 * Source    R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH",
 *           Int. J. High Perform. Comput. Appl. 19(1), 2005, doi:10.1177/1094342005051521
 * Needs     any P, any counts.
 * Cost      steps  P-1;  bytes  all but what stays: n(P-1)/P, each element once
 * Memory    none.
 * Rounding  permutes: bits are equal.
 *
 *     step 1: r -> r+1      step 2: r -> r+2      step 3: r -> r+3      (mod P): nobody receives from two at once
 */
#include "emulated_devices/collectives/algorithm.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    struct exchange x = exchange_begin(g, ALLTOALL);
    enum error_code code = OK;
    keep_own(&x, c);
    for (int step = 1; step < P && code == OK; step++) {
        const int to = imod(r + step, P), from = imod(r - step, P);
        code = exchange_both(&x, to, given(c, to), bytes_of(c, given_to(c, to)), from, taken(c, from), bytes_of(c, taken_from(c, from)), err);
    }
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { .steps = (uint64_t)(P - 1) };
    for (int d = 0; d < P; d++) if (d != r) cost_send(&cost, c, given_to(c, d));
    return cost;
}

const struct algorithm alltoall_pairwise_shift = {
    .operation = ALLTOALL, .name = "pairwise_shift", .description = "in step k to the device k further on: no port is used twice",
    .source = "Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521",
    .cost_formula = "(P-1) a + n(P-1)/P b", .run = run, .cost = cost,
};
