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
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5, skips 1 2 3 5:    w3 w4 -> r+3      w2 -> r+2      w1 -> r+1
 */
#include "emulated_devices/collectives/algorithm.h"

/* Elements of w(first) .. w(last-1), as seen from a device. */
static int64_t reduce_scatter_circulant_span(const struct collective *collective, int P, int r, int first, int last)
{
    return comb_length(collective, P, (struct comb){ r + first, 1, last - first });
}

/* out [block r] = sum over members of in's block r.  Sums grow in w, a rotated copy of the input. */
static enum error_code reduce_scatter_circulant_run(struct group *group, const struct collective *collective,
                                                    struct error *err)
{
    const int P = group->size, r = group->rank;
    const struct skips k = circulant_skips(P);
    const int64_t n = block_total(collective, P);
    struct exchange x = exchange_begin(group, REDUCE_SCATTER);
    void *w;
    enum error_code code = scratch_agreed(&x, collective, 2 * n, &w, err);
    if (code != OK) return code;
    void *in = element(collective, w, n);

    /* w begins with the block of this device, and has the others in the order of distance. */
    comb_pack(&x, collective, (struct comb){ r, 1, P }, w, collective->in);
    for (int i = k.rounds - 1; i >= 0 && code == OK; i--) {
        /* Sums w(s) .. go to the device s further on; what arrives is added to w(0) .. */
        const int s = k.skip[i], many = k.skip[i + 1] - s;
        const int64_t giving = reduce_scatter_circulant_span(collective, P, r, s, s + many),
            taking = reduce_scatter_circulant_span(collective, P, r, 0, many);
        code = send_and_add(&x, collective, imod(r + s, P),
                            element(collective, w, reduce_scatter_circulant_span(collective, P, r, 0, s)), giving,
                            imod(r - s, P), in, w,
                            taking, err);
    }
    if (code == OK) {
        copy_elements(&x, collective, collective->out, w, block_length(collective, P, r));
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, block_length(collective, P, r));
    }
    exchange_release(&x, w);
    return code;
}

static struct collective_cost reduce_scatter_circulant_cost(int r, int P, const struct collective *collective)
{
    const struct skips k = circulant_skips(P);
    struct collective_cost cost = { .steps = (uint64_t)k.rounds };
    for (int i = 0; i < k.rounds; i++) {
        cost_send(&cost, collective, reduce_scatter_circulant_span(collective, P, r, k.skip[i], k.skip[i + 1]));
        cost.additions += (uint64_t)reduce_scatter_circulant_span(collective, P, r, 0, k.skip[i + 1] - k.skip[i]);
    }
    return cost;
}

const struct algorithm reduce_scatter_circulant = {
    .operation = REDUCE_SCATTER, .name = "circulant",
    .description = "fewest rounds and fewest bytes at once, for any P",
    .order = BY_POSITION, .vectors = 2, .source = "Traeff 2024, arXiv:2410.14234",
    .cost_formula = "ceil(log2 P) a + n(P-1)/P b",
    .run = reduce_scatter_circulant_run, .cost = reduce_scatter_circulant_cost,
};
