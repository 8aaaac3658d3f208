/* sparse-reduce-scatter, flat: every target sends its values of a block to the owner, which adds.
 *
 * Source    NCCL's grouped reductions of Hecate (fully sharded sparse data parallelism), arXiv:2502.02581
 * Needs     any P, any placement, any counts.
 * Cost      messages  the blocks of which a device is a target;  bytes  their lengths
 *           adds      of each own block its length for each target
 * Memory    two of the longest own block; the list of messages.
 * Rounding  in the order of ranks, whoever is the owner: if a block changes its owner, the bits of its sum do not.
 * Called    registry.c lists it; collective_run calls its run on every member, collective_cost its cost.  If a
 *           member has no scratch, a small call ends the job, and one above AGREE_FROM bytes gives ERR_MEMORY on every
 *           member.  A message that fails gives ERR_COMM, with which collective_run ends the job.
 *
 *     blocks  a of member 0 for 1 2 3    b of member 2 for 0         1 -a-> 0   2 -a-> 0   3 -a-> 0   0 -b-> 2
 */
#include "emulated_devices/collectives/sparse.h"

static int send_all(struct exchange *exchange, const struct collective *collective, struct message *message)
{
    int n = 0;
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, exchange->group->size, exchange->group->rank, &w);
         ) {
        if (w.owns || !w.holds || w.length == 0) continue;
        if (message) message[n] = message_send(exchange, w.owner, const_element(collective, collective->in, w.held_at),
                                               bytes_of(collective, w.length));
        n++;
    }
    return n;
}

static int64_t longest_to_add(const struct collective *collective, int P, int member)
{
    int64_t longest = 0;
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, member, &w); )
        for (int m = 0; m < P && w.owns; m++)
            if (m != member && w.length > longest && sparse_holds(collective, P, w.b, m)) longest = w.length;
    return longest;
}

/* The values of holder m of an own block: in `into`, or added to it. */
static enum error_code reduce_scatter_flat_take(struct exchange *exchange, const struct collective *collective,
                                                const struct sparse_walk *walk, int m,
                                                bool first, void *into, void *other, struct error *err)
{
    const void *own = const_element(collective, collective->in, walk->held_at);
    void *place = first ? into : other;
    enum error_code code = OK;
    if (m == walk->owner && first) copy_elements(exchange, collective, into, own, walk->length);
    if (m != walk->owner)
        code = exchange_both(exchange, -1, NULL, 0, m, place, bytes_of(collective, walk->length), err);
    if (!first && !code) reduce_local(exchange, collective->reduction, collective->dtype, into,
                                      m == walk->owner ? own : other, walk->length);
    return code;
}

/* Own blocks in their order; of each the holders in the order of ranks. */
static enum error_code add_all(struct exchange *exchange, const struct collective *collective, void *sum, void *other,
                               struct error *err)
{
    const int P = exchange->group->size, me = exchange->group->rank;
    const struct own_blocks own = sparse_own_blocks(exchange, collective);
    enum error_code code = OK;
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, me, &w) && !code; ) {
        if (!w.owns || w.length == 0) continue;
        int holders = 0, added = 0;
        for (int m = 0; m < P; m++) holders += sparse_holds(collective, P, w.b, m);
        void *out = element(collective, collective->out, sparse_own_at(own, &w));
        for (int m = 0; m < P && holders > 1 && !code; m++)
            if (sparse_holds(collective, P, w.b, m))
                code = reduce_scatter_flat_take(exchange, collective, &w, m, added++ == 0, sum, other, err);
        if (holders > 1) copy_elements(exchange, collective, out, sum, w.length);
        reduce_finish(exchange, collective->reduction, collective->dtype, out, w.length);
    }
    return code;
}

/* Sends begin before the sums, so that no owner waits for a member that is still adding. */
static enum error_code reduce_scatter_flat_run(struct group *group, const struct collective *collective,
                                               struct error *err)
{
    struct exchange x = exchange_begin(group, SPARSE_REDUCE_SCATTER);
    const int64_t longest = longest_to_add(collective, group->size, group->rank);
    void *scratch;
    enum error_code code = scratch_agreed(&x, collective, 2 * longest, &scratch, err);
    if (code != OK) return code;
    const int sends = send_all(&x, collective, NULL);
    struct message *m = message_list(&x, sends);
    send_all(&x, collective, m);
    sparse_copy_own(&x, collective);
    code = add_all(&x, collective, scratch, element(collective, scratch, longest), err);
    const enum error_code last = wait_all(&x, m, sends, code ? NULL : err);
    exchange_small_end(&x, m);
    exchange_release(&x, scratch);
    return code ? code : last;
}

static struct collective_cost reduce_scatter_flat_cost(int r, int P, const struct collective *collective)
{
    struct collective_cost cost = { .depth = 1 };
    for (struct sparse_walk w = { .b = -1 }; sparse_next(collective, P, r, &w); ) {
        if (w.holds && !w.owns && w.length > 0) cost_send(&cost, collective, w.length);
        for (int m = 0; m < P && w.owns; m++)
            if (m != r && sparse_holds(collective, P, w.b, m)) cost.additions += (uint64_t)w.length;
    }
    cost.path = bytes_of(collective, (int64_t)cost.additions);
    if (cost.bytes > cost.path) cost.path = cost.bytes;
    return cost;
}

const struct algorithm sparse_reduce_scatter_flat = {
    .operation = SPARSE_REDUCE_SCATTER, .name = "flat",
    .description = "every target sends its values of a block to the owner, which adds", .order = BY_RANK,
    .source = "Hecate, arXiv:2502.02581", .cost_formula = "a + (sum over own blocks of targets x length) b",
    .run = reduce_scatter_flat_run, .cost = reduce_scatter_flat_cost,
};
