/* reduce-scatter, circulant graph: the minimum of rounds and of bytes, for any P.
 *
 * Source    J. L. Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv:2410.14234
 * Needs     any P, any counts.
 * Idea      number the blocks from the device's own: w0 = b(r), w1 = b(r+1), ..  The skips are P, then each
 *           half of the one before, rounded up.  In the round from s' to s = ceil(s'/2), send the sums of
 *           w(s) .. w(s'-1) to device r+s; there they are added to w(0) .. w(s'-s-1).
 * Cost      steps  ceil(log2 P), bytes n - |b(r)|: both are minimal;  adds  all received elements
 * Memory    the vector once, and half of it.
 * Rounding  the order depends only on P.
 *
 * P = 5, skips 1 2 3 5:    w3 w4 -> r+3      w2 -> r+2      w1 -> r+1
 */
#include "emulated_devices/collectives/algorithm.h"

/* Elements of w(first) .. w(last-1), as seen from a device. */
static int64_t span(const struct collective *c, int P, int r, int first, int last)
{
    return comb_length(c, P, (struct comb){ r + first, 1, last - first });
}

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank;
    const struct skips k = circulant_skips(P);
    const int64_t n = block_total(c, P);
    struct exchange x = exchange_begin(g, REDUCE_SCATTER);
    void *w;
    enum error_code code = scratch_agreed(&x, c, 2 * n, &w, err);
    if (code != OK) return code;
    void *in = element(c, w, n);

    /* w begins with the block of this device, and has the others in the order of distance. */
    comb_pack(&x, c, (struct comb){ r, 1, P }, w, c->in);
    for (int i = k.rounds - 1; i >= 0 && code == OK; i--) {
        /* Sums w(s) .. go to the device s further on; what arrives is added to w(0) .. */
        const int s = k.skip[i], many = k.skip[i + 1] - s;
        const int64_t giving = span(c, P, r, s, s + many), taking = span(c, P, r, 0, many);
        code = send_and_add(&x, c, imod(r + s, P), element(c, w, span(c, P, r, 0, s)), giving, imod(r - s, P), in, w,
                            taking, err);
    }
    if (code == OK) {
        copy_elements(&x, c, c->out, w, block_length(c, P, r));
        reduce_finish(&x, c->reduction, c->dtype, c->out, block_length(c, P, r));
    }
    exchange_release(&x, w);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    const struct skips k = circulant_skips(P);
    struct collective_cost cost = { .steps = (uint64_t)k.rounds };
    for (int i = 0; i < k.rounds; i++) {
        cost_send(&cost, c, span(c, P, r, k.skip[i], k.skip[i + 1]));
        cost.additions += (uint64_t)span(c, P, r, 0, k.skip[i + 1] - k.skip[i]);
    }
    return cost;
}

const struct algorithm reduce_scatter_circulant = {
    .operation = REDUCE_SCATTER, .name = "circulant",
    .description = "fewest rounds and fewest bytes at once, for any P",
    .order = BY_POSITION, .source = "Traeff 2024, arXiv:2410.14234", .cost_formula = "ceil(log2 P) a + n(P-1)/P b",
    .run = run, .cost = cost,
};
