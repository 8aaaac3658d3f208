/* experts, allgather: every device has some of the experts, and gets the rows of all; the results are reduce-scattered.
 *
 * Source   Megatron Core's MoEAllGatherTokenDispatcher (NVIDIA/Megatron-LM); also where few devices share the experts
 *          and k is large in S. Singh et al., "A hybrid tensor-expert-data parallelism approach", arXiv:2303.06318
 * Group    P devices; E experts in P nearly equal ranges, so with P > E some devices have none
 * Layout   the pool is the rows of all members, in their order; each device computes the choices of its own experts
 *
 *          P = 2, E = 4, two experts for each token
 *          device 0   tokens 02 13   has experts 0 and 1, computes  0 of the first, 1 of the second, 0 of the third
 *          device 1   tokens 30      has experts 2 and 3, computes  2 of the first, 3 of the second, 3 of the third
 *
 * Sends    with n rows of this device and N of all, ring algorithms: D numbers of N - n rows there, forward and
 *          backward, and of N - n back; choices of 32 bits and weights there, forward, and gradients of weights back:
 *          k numbers a row
 * Memory   dispatch.h, weighs_there
 * Equals   reassociates: a row's results are added by device, then over devices
 *
 * Called by: model/run/run_mixture.c, through dispatch.c, which reports ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/schemes/experts/dispatch.h"

static const char *allgather_refuses(const struct expert_parallel *ep, const struct model_config *config)
{
    (void)ep, (void)config;
    return NULL;
}

/* A device tells one number: how many rows it has. */
static int64_t told(const struct expert_parallel *ep)
{
    (void)ep;
    return 1;
}

static void allgather_tell(const struct expert_parallel *ep, const struct choices *choices, int32_t *own)
{
    (void)ep;
    own[0] = (int32_t)choices->rows;
}

/* The hop is an all-gather: member m brings all its rows, whoever needs them. */
static enum error_code allgather_hop(const struct expert_parallel *ep, const struct expert_routing *routing,
                                     const struct choices *held,
                                     int index, struct expert_hop *expert_hop, struct error *err)
{
    (void)held, (void)index;
    const enum error_code e = hop_make(expert_hop, ep->group, ALLGATHER, -1, err);
    for (int m = 0; m < ep->devices && !e; m++) expert_hop->got[m] = routing->table[m];
    return e;
}

const struct expert_scheme expert_scheme_allgather = {
    .head = { .kind = EXPERT_SCHEME, .equality = REASSOCIATES, .name = "allgather",
              .description = "some experts on each device, which gets the rows of all; results are reduce-scattered",
              .source = "Megatron Core's allgather dispatcher, arXiv:2504.14960",
              .volume = "2 n D (P-1) elements a layer forward, for n tokens, whatever k; backward as many",
              .memory = "k weights for each of all devices' tokens; for each row of own experts: 2 D, up and F wide",
              .needs = "P a divisor of dp x cp x tp" },
    DISPATCH_SCHEME, .turns = true, .weighs_there = true, .exact = true, .refuses = allgather_refuses, .told = told,
        .tell = allgather_tell, .hops = 1,
    .hop = allgather_hop,
};
