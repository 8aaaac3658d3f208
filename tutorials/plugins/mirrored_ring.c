/* allreduce, mirrored-ring: the ring all-reduce, the other way round.
 *
 * Source    P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 *           J. Parallel Distrib. Comput. 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002, with left and right exchanged
 * Needs     any P, any count; blocks may be empty.
 * Cost      steps  2(P-1)
 *           bytes  2n - |b(r-1)| - |b(r-2)|  elements
 *           adds   n - |b(r)|
 * Memory    one scratch block, ceil(n/P) elements.
 * Rounding  block b is added in the order of devices b, b-1, .., b+1.
 * Errors    ERR_MEMORY, and ERR_COMM of a message.
 *
 * A template for plug-ins (docs/authors/plugins.md):
 *     orrery verify collectives --devices 5 --plugin mirrored_ring.c
 */
#include "emulated_devices/schemes/plugin.h"

static enum error_code run(struct group *g, const struct collective *c, struct error *err)
{
    const int P = g->size, r = g->rank, left = imod(r - 1, P), right = imod(r + 1, P);
    struct exchange x = exchange_begin(g, ALLREDUCE);
    void *scratch;
    enum error_code code = scratch_agreed(&x, c, part_length(c->count, P, 0), &scratch, err);

    for (int phase = 0; phase < 2; phase++)                     /* 0: reduce-scatter, 1: allgather */
        for (int step = 0; step < P - 1 && code == OK; step++) {
            const int give = imod(r - phase + step, P), take = imod(give + 1, P);
            const int64_t giving = part_length(c->count, P, give), taking = part_length(c->count, P, take);
            void *mine = element(c, c->out, block_start(c->count, P, take));

            code = exchange_both(&x, left, element(c, c->out, block_start(c->count, P, give)), bytes_of(c, giving),
                                 right, phase == 0 ? scratch : mine, bytes_of(c, taking), err);
            if (phase == 0 && code == OK) reduce_local(&x, c->reduction, c->dtype, mine, scratch, taking);
            if (phase == 0 && code == OK && step == P - 2) reduce_finish(&x, c->reduction, c->dtype, mine, taking);
        }
    exchange_release(&x, scratch);
    return code;
}

static struct collective_cost cost(int r, int P, const struct collective *c)
{
    return (struct collective_cost){
        .messages = 2 * (uint64_t)(P - 1),
        .bytes = bytes_of(c, 2 * c->count - part_length(c->count, P, r - 1) - part_length(c->count, P, r - 2)),
        .additions = (uint64_t)(c->count - part_length(c->count, P, r)),
        .steps = 2 * (uint64_t)(P - 1),
    };
}

static const struct algorithm allreduce_mirrored_ring = {
    .operation = ALLREDUCE, .name = "mirrored-ring", .description = "the ring, the other way round",
    .order = BY_POSITION, .source = "Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002, mirrored",
    .cost_formula = "2(P-1) a + 2n(P-1)/P b", .run = run, .cost = cost,
};

PLUGIN(PLUGIN_ALGORITHM(allreduce_mirrored_ring));
