/* broadcast, scatter and doubling: the root scatters parts, then devices at distance 1, 2, 4, .. exchange their parts.
 *
 * Source    M. Barnett, L. Shuler, S. Gupta, D. Payne, R. van de Geijn, J. Watts, "Building a high-performance
 *           collective communication library", Supercomputing 1994; also doi:10.1177/1094342005051521
 * Needs     P a power of two; any count, any root.
 * Cost      steps  2 log2 P
 *           bytes  2n(P-1)/P at the root
 * Memory    none.
 * Rounding  permutes: bits are equal.
 *
 * P = 4, root 0:   scatter  0 -cd-> 2   0 -b-> 1   2 -d-> 3
 *                  collect  0,1: ab   2,3: cd      then all: abcd
 */
#include "emulated_devices/collectives/algorithm.h"

static const char *refuses(int P, const struct collective *c)
{
    (void)c;
    return (P & (P - 1)) == 0 ? NULL : "P a power of two";
}

/* The parts that v has before the exchange at this distance: `distance` of them, from the returned first one. */
static int64_t group_of_parts(const struct collective *c, int P, int v, int distance, int64_t *n)
{
    const int first = v / distance * distance;
    *n = block_start(c->count, P, first + distance) - block_start(c->count, P, first);
    return block_start(c->count, P, first);
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, v = imod(g->rank - c->root, P);
    const struct parts p = { P, c->root, false };
    struct exchange x = exchange_begin(g, BROADCAST);
    /* First each device gets one part; then parts are exchanged at distance 1, 2, 4, .. */
    enum error_code code = binomial_scatter(&x, c, p, element(c, c->out, part_edge(c, p, v)), err);
    for (int distance = 1; distance < P && code == OK; distance *= 2) {
        int64_t giving, taking;
        const int64_t give = group_of_parts(c, P, v, distance, &giving),
                      take = group_of_parts(c, P, v ^ distance, distance, &taking);
        const int peer = imod((v ^ distance) + c->root, P);
        code = exchange_both(&x, peer, element(c, c->out, give), bytes_of(c, giving), peer, element(c, c->out, take),
                             bytes_of(c, taking), err);
    }
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    struct collective_cost cost = { 0 };
    binomial_parts_cost(&cost, c, (struct parts){ P, c->root, false }, r, true);
    for (int distance = 1; distance < P; distance *= 2) {
        int64_t n;
        group_of_parts(c, P, imod(r - c->root, P), distance, &n);
        cost_send(&cost, c, n);
        cost.steps++;
    }
    return cost;
}

const struct algorithm broadcast_scatter_doubling = {
    .operation = BROADCAST, .name = "scatter_doubling",
    .description = "deal out parts, then exchange by doubling: long vectors, few steps",
    .source = "Barnett et al. 1994; doi:10.1177/1094342005051521", .cost_formula = "2 log2 P a + 2n(P-1)/P b",
    .needs = "P a power of two", .refuses = refuses, .run = run, .cost = cost,
};
