/* broadcast, scatter and doubling: the root scatters parts, then devices at distance 1, 2, 4, .. exchange their parts.
 *
 * Source    M. Barnett, L. Shuler, S. Gupta, D. Payne, R. van de Geijn, J. Watts, "Building a high-performance
 *           collective communication library", Supercomputing 1994; also doi:10.1177/1094342005051521
 * Needs     P a power of two; any count, any root.
 * Cost      steps  2 log2 P
 *           bytes  2n(P-1)/P at the root
 * Memory    none.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  A message
 *           that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 4, root 0:   scatter  0 -cd-> 2   0 -b-> 1   2 -d-> 3
 *                  collect  0,1: ab   2,3: cd      then all: abcd
 */
#include "emulated_devices/collectives/algorithm.h"

static const char *scatter_doubling_refuses(int P, const struct collective *collective)
{
    (void)collective;
    return (P & (P - 1)) == 0 ? NULL : "P a power of two";
}

/* The parts that v has before the exchange at this distance: `distance` of them, from the returned first one. */
static int64_t group_of_parts(const struct collective *collective, int P, int v, int distance, int64_t *n)
{
    const int first = v / distance * distance;
    *n = block_start(collective->count, P, first + distance) - block_start(collective->count, P, first);
    return block_start(collective->count, P, first);
}

/* out [count] of every member = the root's vector; parts are numbered from the root on. */
static enum error_code scatter_doubling_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, v = imod(group->rank - collective->root, P);
    const struct parts p = { P, collective->root, false };
    struct exchange x = exchange_begin(group, BROADCAST);
    /* First each device gets one part; then parts are exchanged at distance 1, 2, 4, .. */
    enum error_code code = binomial_scatter(&x, collective, p,
                                            element(collective, collective->out, part_edge(collective, p, v)), err);
    for (int distance = 1; distance < P && code == OK; distance *= 2) {
        int64_t giving, taking;
        const int64_t give = group_of_parts(collective, P, v, distance, &giving),
                      take = group_of_parts(collective, P, v ^ distance, distance, &taking);
        const int peer = imod((v ^ distance) + collective->root, P);
        code = exchange_both(&x, peer, element(collective, collective->out, give), bytes_of(collective, giving), peer,
                             element(collective, collective->out, take), bytes_of(collective, taking), err);
    }
    return code;
}

static struct collective_cost scatter_doubling_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { 0 };
    binomial_parts_cost(&cost, collective, (struct parts){ P, collective->root, false }, r, true);
    for (int distance = 1; distance < P; distance *= 2) {
        int64_t n;
        group_of_parts(collective, P, imod(r - collective->root, P), distance, &n);
        cost_send(&cost, collective, n);
        cost.steps++;
    }
    return cost;
}

const struct algorithm broadcast_scatter_doubling = {
    .operation = BROADCAST, .name = "scatter_doubling",
    .description = "deal out parts, then exchange by doubling: long vectors, few steps",
    .source = "Barnett et al. 1994; doi:10.1177/1094342005051521", .cost_formula = "2 log2 P a + 2n(P-1)/P b",
    .needs = "P a power of two", .refuses = scatter_doubling_refuses, .run = scatter_doubling_run,
        .cost = scatter_doubling_cost,
};
