/* allgather, circulant graph: like Bruck's, with more even step sizes.
 *
 * Source    J. L. Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv:2410.14234
 * Needs     any P, any counts.
 * Idea      each skip s(k) is s(k+1)/2, rounded up, from P down.  In round k a device has s(k) blocks and sends
 *           s(k+1) - s(k) of them to device r - s(k); then it has s(k+1).  The reduce-scatter in reverse.
 * Cost      steps  ceil(log2 P);  bytes  all blocks but one: n(P-1)/P.  Both are minimal.
 * Memory    the vector once more, since blocks are gathered in rotated order.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5, skips 1 2 3 5:    w0 -> r-1      w0 -> r-2      w0 w1 -> r-3
 */
#include "emulated_devices/collectives/algorithm.h"

/* Elements of w(first) .. w(last-1), as seen from a device: w0 = b(r), w1 = b(r+1), .. */
static int64_t circulant_span(const struct collective *collective, int P, int r, int first, int last)
{
    return comb_length(collective, P, (struct comb){ r + first, 1, last - first });
}

/* The device has w(0) .. w(have-1); exchange `many` of them with the devices at this distance. */
static enum error_code circulant_extend(struct exchange *exchange, const struct collective *collective, void *w,
                                        int distance, int many, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    return exchange_both(exchange, imod(r - distance, P), w,
                         bytes_of(collective, circulant_span(collective, P, r, 0, many)), imod(r + distance, P),
                         element(collective, w, circulant_span(collective, P, r, 0, distance)),
                         bytes_of(collective, circulant_span(collective, P, r, distance, distance + many)), err);
}

/* out [all blocks] = every member's block.  Blocks gather in w, rotated so that the own block comes first. */
static enum error_code circulant_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, ALLGATHER);
    void *w;
    enum error_code code = scratch_agreed(&x, collective, block_total(collective, P), &w, err);
    if (code == OK) copy_elements(&x, collective, w, collective->in, block_length(collective, P, r));
    const struct skips k = circulant_skips(P);
    /* Round i: skip[i] blocks are here; skip[i + 1] - skip[i] more arrive from the device at that distance. */
    for (int i = 0; i < k.rounds && code == OK; i++)
        code = circulant_extend(&x, collective, w, k.skip[i], k.skip[i + 1] - k.skip[i], err);
    if (code == OK) comb_unpack(&x, collective, (struct comb){ r, 1, P }, collective->out, w);
    exchange_release(&x, w);
    return code;
}

static struct collective_cost circulant_cost(int r, int P, const struct collective *collective)
{
    const struct skips k = circulant_skips(P);
    struct collective_cost cost = { .steps = (uint64_t)k.rounds };
    for (int i = 0; i < k.rounds; i++)
        cost_send(&cost, collective, circulant_span(collective, P, r, 0, k.skip[i + 1] - k.skip[i]));
    return cost;
}

const struct algorithm allgather_circulant = {
    .operation = ALLGATHER, .name = "circulant",
    .description = "skips are P halved again and again: fewest rounds and bytes",
    .source = "Traeff 2024, arXiv:2410.14234",
    .cost_formula = "ceil(log2 P) a + n(P-1)/P b", .run = circulant_run, .cost = circulant_cost,
};
