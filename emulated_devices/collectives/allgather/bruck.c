/* allgather, Bruck's: the number of blocks on a device doubles in every step, for any P.
 *
 * Source    J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient algorithms for all-to-all communications
 *           in multiport message-passing systems", IEEE TPDS 8(11), 1997, doi:10.1109/71.642949
 * Needs     any P, any counts.
 * Idea      number the blocks from the device's own.  A device with w(0) .. w(h-1) sends them to device r-h, where
 *           they are w(h) .. w(2h-1).  The last step sends only the missing blocks.
 * Cost      steps  ceil(log2 P);  bytes  all blocks but one: n(P-1)/P.  Both are minimal.
 * Memory    the vector once more, since blocks are gathered in rotated order.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5:    w0 -> r-1      w0 w1 -> r-2      w0 -> r-4
 */
#include "emulated_devices/collectives/algorithm.h"

/* Elements of w(first) .. w(last-1), as seen from a device: w0 = b(r), w1 = b(r+1), .. */
static int64_t bruck_span(const struct collective *collective, int P, int r, int first, int last)
{
    return comb_length(collective, P, (struct comb){ r + first, 1, last - first });
}

/* The device has w(0) .. w(have-1); exchange `many` of them with the devices at this distance. */
static enum error_code bruck_extend(struct exchange *exchange, const struct collective *collective, void *w,
                                    int distance, int many, struct error *err)
{
    const int P = exchange->group->size, r = exchange->group->rank;
    return exchange_both(exchange, imod(r - distance, P), w,
                         bytes_of(collective, bruck_span(collective, P, r, 0, many)), imod(r + distance, P),
                         element(collective, w, bruck_span(collective, P, r, 0, distance)),
                         bytes_of(collective, bruck_span(collective, P, r, distance, distance + many)), err);
}

/* out [all blocks] = every member's block.  Blocks gather in w, rotated so that the own block comes first. */
static enum error_code bruck_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, ALLGATHER);
    void *w;
    enum error_code code = scratch_agreed(&x, collective, block_total(collective, P), &w, err);
    if (code == OK) copy_elements(&x, collective, w, collective->in, block_length(collective, P, r));
    /* w(0) .. w(have-1) go to the device `have` before; as many arrive from the one `have` behind, until all P are
     * here. */
    for (int have = 1; have < P && code == OK; have *= 2)
        code = bruck_extend(&x, collective, w, have, have < P - have ? have : P - have, err);
    /* w begins with the own block: unpacking turns it, so that b(0) stands first in out. */
    if (code == OK) comb_unpack(&x, collective, (struct comb){ r, 1, P }, collective->out, w);
    exchange_release(&x, w);
    return code;
}

static struct collective_cost bruck_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)ceil_log2(P) };
    /* The last step sends only what is missing. */
    for (int have = 1; have < P; have *= 2)
        cost_send(&cost, collective, bruck_span(collective, P, r, 0, have < P - have ? have : P - have));
    return cost;
}

const struct algorithm allgather_bruck = {
    .operation = ALLGATHER, .name = "bruck", .description = "what one has doubles in every step, for any P",
    .source = "Bruck et al. 1997, doi:10.1109/71.642949",
    .cost_formula = "ceil(log2 P) a + n(P-1)/P b", .run = bruck_run, .cost = bruck_cost,
};
