/* experts, speculative: as alltoall, but rows are on the device that has most of their experts, as far as a table
 * predicts it.
 *
 * Source   Semantic parallelism (Sem-MoE), arXiv:2503.04398, scheduling of tokens with tensor-parallel attention
 * Group    as alltoall; devices along tp share out the rows of a microbatch
 * Layout   outside attention the rows of a microbatch lie in the order of affinity.h, so the r-th range of them, which
 *          is device r's, has the rows with experts there.  With sequence parallelism the reduce-scatter after
 *          attention delivers rows so, and the all-gather before it collects them so: both are shuffled.  Attention
 *          puts its rows back in order, and the results in that of the table, on each device by itself
 *
 *          2 devices, experts 0 1 on the first; below each row its expert
 *          row     0 1 2 3        order  1 2 | 0 3        alltoall     sends rows 0, 3 and 2: 3 messages of D
 *          expert  3 0 1 2        expert 0 1 | 3 2        speculative  sends nothing
 *
 * Sends    as alltoall, of which (1 - a) k n D numbers each way for n rows, where a is the part of choices whose expert
 *          is on the row's device (the local activation rate): 1/P if nothing is known
 * Memory   as alltoall; in attention a copy of its input and its result
 * Equals   reassociates, as alltoall.  No result depends on the table: a wrong prediction only sends more
 * Errors   dispatch.c reports ERR_MEMORY and ERR_COMM; plan/shuffle.c reports ERR_PLAN if the table does not fit.
 *
 * Called by: model/run/run_mixture.c, through dispatch.c; plan/shuffle.c orders the rows.
 */
#include "emulated_devices/schemes/experts/dispatch.h"
#include "emulated_devices/schemes/experts/expert_invariants.h"

static const char *speculative_refuses(const struct expert_parallel *ep, const struct model_config *config)
{
    (void)ep, (void)config;
    return NULL;
}

const struct expert_scheme expert_scheme_speculative = {
    .head = { .kind = EXPERT_SCHEME, .equality = REASSOCIATES, .name = "speculative",
              .description = "as alltoall, with each row where a table of tokens predicts most of its experts",
              .source = "Semantic parallelism (Sem-MoE), arXiv:2503.04398",
              .volume = "2 (1-a) k n D elements a layer forward, where a of the choices are local; backward as many",
              .memory = "as alltoall; in attention its rows twice",
              .needs = "--affinity FILE; rows are shared out along tp", .invariants = speculative_invariants },
    DISPATCH_SCHEME, .refuses = speculative_refuses, .hops = 1, .hop = dispatch_hop, .predicts = true,
    .exact = true,
};
