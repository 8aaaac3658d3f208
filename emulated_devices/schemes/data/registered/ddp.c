/* data parallelism, ddp: every device has all weights; gradients are all-reduced in buckets; every device steps all.
 *
 * Source   S. Li et al., "PyTorch distributed: experiences on accelerating data parallel training", arXiv:2006.15704
 * Group    P devices with the same pieces of the model and different sequences
 * Shares   nothing: 1 | 1 | 1
 * Layout   weights, gradients and optimizer state whole on every device
 * Sends    per step one all-reduce for each bucket of gradients; buckets are consecutive ranges of the gradient block,
 *          last layer first.  A bucket is reduced when the last microbatch's backward pass has added to all of it, on
 *          the communication stream: bucket i is done at c(i) = max(c(i-1), ready(i)) + t(i).  Gradients of earlier
 *          microbatches, and of several uses of a parameter, are first summed on the device; gradients to which no pass
 *          adds are reduced as zeros.  For n elements each device sends 2 n (P-1)/P with a ring
 * Memory   weights n, gradients n, optimizer state n for each of its tensors
 * Equals   reassociates: the gradient is the sum over devices, in the order of the --allreduce (by default of ranks),
 *          of sums over microbatches.  All devices get the same bits, so their weights stay equal without being sent.
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls ddp_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *ddp_share(struct shards *shards, const struct data_request *request)
{
    (void)shards;
    return request->group > 0 ? "shares nothing; --shard-group is for schemes that do" : NULL;
}

const struct data_scheme data_scheme_ddp = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "ddp", .description = "whole copies of the model; gradients all-reduced in buckets",
              .source = "PyTorch DDP, arXiv:2006.15704", .volume = "2 n (P-1)/P elements a step",
              .memory = "weights n, gradients n, optimizer state k n" },
    .share = ddp_share,
};
