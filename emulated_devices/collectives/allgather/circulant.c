/* allgather, circulant graph: like Bruck's, with more even step sizes.
 *
 * Source    J. L. Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv:2410.14234
 * Needs     any P, any counts.
 * Idea      each skip s(k) is s(k+1)/2, rounded up, from P down.  In round k a device has s(k) blocks and sends
 *           s(k+1) - s(k) of them to device r - s(k); then it has s(k+1).  The reduce-scatter in reverse.
 * Cost      steps  ceil(log2 P);  bytes  all blocks but one: n(P-1)/P.  Both are minimal.
 * Memory    the vector once more, since blocks are gathered in rotated order.
 * Rounding  permutes: bits are equal.
 *
 * P = 5, skips 1 2 3 5:    w0 -> r-1      w0 -> r-2      w0 w1 -> r-3
 */
#include "emulated_devices/collectives/algorithm.h"

/* Elements of w(first) .. w(last-1), as seen from a device: w0 = b(r), w1 = b(r+1), .. */
static int64_t span(const struct collective *c, int P, int r, int first, int last)
{
    return comb_length(c, P, (struct comb){ r + first, 1, last - first });
}

/* The device has w(0) .. w(have-1); exchange `many` of them with the devices at this distance. */
static enum error_code extend(struct exchange *x, const struct collective *c, void *w, int distance, int many,
                              struct error *err)
{
    const int P = x->group->size, r = x->group->rank;
    return exchange_both(x, imod(r - distance, P), w, bytes_of(c, span(c, P, r, 0, many)), imod(r + distance, P),
                         element(c, w, span(c, P, r, 0, distance)),
                         bytes_of(c, span(c, P, r, distance, distance + many)), err);
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    struct exchange x = exchange_begin(g, ALLGATHER);
    void *w;
    enum error_code code = scratch_agreed(&x, c, block_total(c, P), &w, err);
    if (code == OK) copy_elements(&x, c, w, c->in, block_length(c, P, r));
    const struct skips k = circulant_skips(P);
    /* Round i: skip[i] blocks are here; skip[i + 1] - skip[i] more arrive from the device at that distance. */
    for (int i = 0; i < k.rounds && code == OK; i++) code = extend(&x, c, w, k.skip[i], k.skip[i + 1] - k.skip[i], err);
    if (code == OK) comb_unpack(&x, c, (struct comb){ r, 1, P }, c->out, w);
    exchange_release(&x, w);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const struct skips k = circulant_skips(P);
    struct collective_cost cost = { .steps = (uint64_t)k.rounds };
    for (int i = 0; i < k.rounds; i++) cost_send(&cost, c, span(c, P, r, 0, k.skip[i + 1] - k.skip[i]));
    return cost;
}

const struct algorithm allgather_circulant = {
    .operation = ALLGATHER, .name = "circulant",
    .description = "skips are P halved again and again: fewest rounds and bytes",
    .source = "Traeff 2024, arXiv:2410.14234",
    .cost_formula = "ceil(log2 P) a + n(P-1)/P b", .run = run, .cost = cost,
};
