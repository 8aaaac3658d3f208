/* reduce-scatter, parallel aggregated trees: one binomial tree per block, all at once, one message per step.
 *
 * Source    S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", arXiv:2506.20252;
 *           in NCCL since 2.23.  Here without its limit on the size of buffers
 * Needs     any P, any counts.
 * Idea      the tree of block b is a binomial tree rooted at device b.  In the step with bit 1, 2, 4, .. device r sends
 *           its sums of the blocks r-bit, r-3bit, r-5bit, .. to r-bit in one message.  The last steps have the largest
 *           distance and send the fewest blocks.
 * Cost      steps  ceil(log2 P), any P
 *           bytes  n - |b(r)|: each block but its own leaves a device once
 *           adds   as many as are received
 * Memory    the vector, and the blocks of a step twice: the input is only read.
 * Rounding  block b is added in the order of its tree.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5, block 0:   0 <-1- 1     0 <-2- 2 <-1- 3     0 <-4- 4        (the number on an arrow is the bit)
 */
#include "emulated_devices/collectives/algorithm.h"

/* Blocks whose trees have an edge from `to + bit` to `to` in this step. */
static struct comb pat_blocks_of(int to, int bit, int P)
{
    return (struct comb){ .first = to, .stride = -2 * bit, .count = (P - 1 - bit) / (2 * bit) + 1 };
}

/* out [block r] = sum over members of in's block r.  Each message has several blocks, packed. */
static enum error_code pat_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    const int64_t n = block_total(collective, P);
    struct exchange x = exchange_begin(group, REDUCE_SCATTER);
    void *work;
    enum error_code code = scratch_agreed(&x, collective, 3 * n, &work, err);
    if (code != OK) return code;
    void *out = element(collective, work, n), *in = element(collective, work, 2 * n);

    copy_elements(&x, collective, work, collective->in, n);
    for (int bit = 1; bit < P && code == OK; bit *= 2) {
        /* The near edges of all trees come first, with sums of several blocks in one message. */
        const struct comb give = pat_blocks_of(r - bit, bit, P), take = pat_blocks_of(r, bit, P);
        comb_pack(&x, collective, give, out, work);
        code = exchange_both(&x, imod(r - bit, P), out, bytes_of(collective, comb_length(collective, P, give)),
                             imod(r + bit, P), in, bytes_of(collective, comb_length(collective, P, take)), err);
        if (code == OK) comb_reduce(&x, collective, take, work, in);
    }
    if (code == OK) {
        copy_elements(&x, collective, collective->out, block(collective, work, P, r), block_length(collective, P, r));
        reduce_finish(&x, collective->reduction, collective->dtype, collective->out, block_length(collective, P, r));
    }
    exchange_release(&x, work);
    return code;
}

static struct collective_cost pat_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)ceil_log2(P) };
    for (int bit = 1; bit < P; bit *= 2) {
        cost_send(&cost, collective, comb_length(collective, P, pat_blocks_of(r - bit, bit, P)));
        cost.additions += (uint64_t)comb_length(collective, P, pat_blocks_of(r, bit, P));
    }
    return cost;
}

const struct algorithm reduce_scatter_pat = {
    .operation = REDUCE_SCATTER, .name = "pat", .description = "a binomial tree for each block, all at once",
    .order = BY_POSITION, .source = "Jeaugey 2025, arXiv:2506.20252; NCCL 2.23",
    .cost_formula = "ceil(log2 P) a + n(P-1)/P b", .vectors = 3, .run = pat_run, .cost = pat_cost,
};
