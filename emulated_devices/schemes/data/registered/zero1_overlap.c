/* data parallelism, zero1-overlap: as zero1, but new weights are gathered beside the next step's forward pass.
 *
 * Source   Megatron-LM's distributed optimizer with --overlap-grad-reduce and --overlap-param-gather:
 *          core/distributed/distributed_data_parallel.py and param_and_grad_buffer.py, release core_v0.16.1
 * Group    P devices with the same pieces of the model and different sequences
 * Shares   1 | 1 | P
 * Layout   as zero1.  After a step a device's whole weights are new only in the part that it steps, until they are
 *          gathered: checkpoints and comparisons take that part from each device
 * Sends    as zero1, 2 n (P-1)/P.  Gradients go as in zero1, beside the last microbatch's backward passes.  The
 *          all-gather of the weights comes in the next step, once, in buckets by first use (late.c): the first bucket
 *          before the forward pass, each further one beside the passes that use the one before it.  Later
 *          microbatches and the backward pass find whole weights.  --prefetch no: each bucket when it is used.
 *          The weights of a run's last step are not gathered any more, and those of its first step are, though all
 *          devices drew the same
 * Memory   as zero1: weights n, gradients n, optimizer state k n/P
 * Equals   zero1, bit for bit
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls zero1_overlap_share, and makes an
 *          ERR_PLAN of a text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *zero1_overlap_share(struct shards *shards, const struct data_request *request)
{
    shards->optimizer = shard_group(shards, request);
    return NULL;
}

const struct data_scheme data_scheme_zero1_overlap = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "zero1-overlap",
              .description = "zero1 whose weights are gathered in the next step, each bucket before its first use",
              .source = "Megatron-LM, --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
              .volume = "2 n (P-1)/P elements a step",
              .memory = "weights n, gradients n, optimizer state k n/P" },
    .late = true, .share = zero1_overlap_share,
};
