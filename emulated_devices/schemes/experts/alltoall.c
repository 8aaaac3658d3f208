/* experts, alltoall: every device has some of the experts; rows go to them and back by two all-to-alls.
 *
 * Source   D. Lepikhin et al., "GShard", arXiv:2006.16668, section 3.2; dropless, with counts first and exchanges of
 *          different lengths, as Megatron Core's dispatcher: D. Liu et al., "MoE parallel folding", arXiv:2504.14960
 * Group    P devices; E experts in P nearly equal ranges, so with P > E some devices have none
 * Layout   at the sender k n rows sorted by expert, then by row.  At the experts R rows sorted by expert, then by
 *          sender, then as there: with neighbours in the order of their tokens this is the order of one device
 *
 *          P = 2, E = 4, one expert for each token
 *          device 0   tokens 2 0 3 1   sends 0 1 | 2 3   has experts 0 and 1, gets  0 1 | 0     sorts  0 0 1
 *          device 1   tokens 3 0       sends 0   | 3     has experts 2 and 3, gets  2 3 | 3     sorts  2 3 3
 *
 * Sends    counts    of each expert, to all: an all-gather of E numbers of 32 bits
 *          forward   D numbers for each of the k n rows whose expert is elsewhere, and for each of the R rows back
 *          backward  the same: the results' gradients there, the rows' gradients back
 * Memory   dispatch.h, a row a choice
 * Equals   reassociates: gradients of an expert are sums over R rows instead of all
 *
 * Called by: model/run/run_mixture.c, through dispatch.c, which reports ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/schemes/experts/dispatch.h"

static const char *alltoall_refuses(const struct expert_parallel *ep, const struct model_config *config)
{
    (void)ep, (void)config;
    return NULL;
}

const struct expert_scheme expert_scheme_alltoall = {
    .head = { .kind = EXPERT_SCHEME, .equality = REASSOCIATES, .name = "alltoall",
              .description = "some experts on each device; counts, then rows, go to them and back by all-to-alls",
              .source = "GShard, arXiv:2006.16668; Megatron Core, arXiv:2504.14960",
              .volume = "2 k n D (P-1)/P elements a layer forward if the load is even, for n tokens; backward as many",
              .memory = "k rows of D for each token; for each row that comes: 2 D, up and F wide",
              .needs = "P a divisor of dp x cp x tp" },
    DISPATCH_SCHEME, .turns = true, .exact = true, .refuses = alltoall_refuses, .hops = 1, .hop = dispatch_hop,
};
