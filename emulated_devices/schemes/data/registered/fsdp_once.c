/* data parallelism, fsdp-once: as fsdp, but weights are gathered and gradients are reduced once a step.
 *
 * Source   torch.distributed.fsdp.fully_shard with reshard_after_forward=False in a pipeline:
 *          torch.distributed.pipelining, stage.py, backward_maybe_with_nosync, which leaves weights whole and
 *          gradients unreduced until the last microbatch; torchtitan has this by default if there are stages
 * Group    P devices with the same pieces of the model and different sequences
 * Shares   P | P | P, by rows
 * Layout   as fsdp
 * Sends    per step an all-gather of a unit's weights before its first use, and a reduce-scatter of its gradient after
 *          the last microbatch's backward pass: 2 n (P-1)/P elements, however many microbatches there are.  The next
 *          part is gathered while this one computes, unless --prefetch no
 * Memory   weights n/P + n from the first use to the last, gradients n/P + n from the first backward pass to the last,
 *          optimizer state k n/P
 * Equals   as zero1: gradients are summed over microbatches first, then over devices.  With one microbatch fsdp, bit
 *          for bit
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls fsdp_once_share, and makes an ERR_PLAN of
 *          a text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *fsdp_once_share(struct shards *shards, const struct data_request *request)
{
    shards->weights = shards->gradients = shards->optimizer = shard_group(shards, request);
    return NULL;
}

const struct data_scheme data_scheme_fsdp_once = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "fsdp-once",
              .description = "fsdp whose weights are gathered once a step, and gradients reduced once",
              .source = "torch.distributed.fsdp.fully_shard, reshard_after_forward=False, in a pipeline",
              .volume = "2 n (P-1)/P elements a step",
              .memory = "weights n/P + n, gradients n/P + n, optimizer state k n/P; each parameter padded" },
    .rows = true, .once = true, .share = fsdp_once_share,
};
