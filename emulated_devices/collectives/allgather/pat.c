/* allgather, parallel aggregated trees: one binomial tree for each block, all at once, one message for all of a step.
 *
 * Source    S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", arXiv:2506.20252;
 *           in NCCL since 2.23.  Here without its limit on the size of buffers
 * Needs     any P, any counts.
 * Idea      the reduce-scatter in reverse.  In the step with the largest bit below P, then half of it, .. device r
 *           sends those of the blocks r, r-2bit, r-4bit, .. that it has to r+bit.  The first steps have the largest
 *           distance and send the fewest blocks; in Bruck's the most distant steps send the most.
 * Cost      steps  ceil(log2 P);  bytes  all blocks but one: n(P-1)/P
 * Memory    the blocks of a step twice, packed: up to n.
 * Rounding  permutes: bits are equal.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 * P = 5, block 0:   0 -4-> 4     0 -2-> 2 -1-> 3     0 -1-> 1        (the number on an arrow is the bit)
 */
#include "emulated_devices/collectives/algorithm.h"

/* Blocks whose trees have an edge from `from` to from + bit in this step. */
static struct comb allgather_pat_blocks_of(int from, int bit, int P)
{
    return (struct comb){ .first = from, .stride = -2 * bit, .count = (P - 1 - bit) / (2 * bit) + 1 };
}

static enum error_code allgather_pat_run(struct group *group, const struct collective *collective, struct error *err)
{
    const int P = group->size, r = group->rank;
    struct exchange x = exchange_begin(group, ALLGATHER);
    const int64_t n = block_total(collective, P);
    void *out;
    enum error_code code = scratch_agreed(&x, collective, 2 * n, &out, err);
    if (code != OK) return code;
    void *in = element(collective, out, n);

    copy_elements(&x, collective, block(collective, collective->out, P, r), collective->in,
                  block_length(collective, P, r));
    for (int bit = 1 << (ceil_log2(P) - 1); bit >= 1 && code == OK; bit /= 2) {
        /* The far edges of all trees come first: every device sends one packed message to r + bit. */
        const struct comb give = allgather_pat_blocks_of(r, bit, P), take = allgather_pat_blocks_of(r - bit, bit, P);
        comb_pack(&x, collective, give, out, collective->out);
        code = exchange_both(&x, imod(r + bit, P), out, bytes_of(collective, comb_length(collective, P, give)),
                             imod(r - bit, P), in, bytes_of(collective, comb_length(collective, P, take)), err);
        if (code == OK) comb_unpack(&x, collective, take, collective->out, in);
    }
    exchange_release(&x, out);
    return code;
}

static struct collective_cost allgather_pat_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .steps = (uint64_t)ceil_log2(P) };
    for (int bit = 1; bit < P; bit *= 2)
        cost_send(&cost, collective, comb_length(collective, P, allgather_pat_blocks_of(r, bit, P)));
    return cost;
}

const struct algorithm allgather_pat = {
    .operation = ALLGATHER, .name = "pat", .description = "a binomial tree for each block, all at once",
    .source = "Jeaugey 2025, arXiv:2506.20252; NCCL 2.23", .cost_formula = "ceil(log2 P) a + n(P-1)/P b",
        .vectors = 2, .run = allgather_pat_run,
    .cost = allgather_pat_cost,
};
