/* data parallelism, zero2: optimizer state and gradients are sharded.
 *
 * Source   S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
 *          arXiv:1910.02054, section 5.2 (P_os+g)
 * Group    P devices with the same pieces of the model and different sequences
 * Shares   1 | P | P
 * Layout   weights whole on every device; of each unit, padded to a multiple of P, device r keeps the r-th part of the
 *          gradient and of the optimizer's state.  The whole gradient of a part of the model exists only from its
 *          backward pass to its reduce-scatter
 * Sends    per step and microbatch a reduce-scatter of the gradients, in buckets of up to --bucket bytes (bucket.h),
 *          after their backward passes; after the step an all-gather of the weights, also in buckets.  n (P-1)/P (M+1)
 *          elements sent with M microbatches: with one, as in ddp
 * Memory   weights n, gradients n/P, the largest part of the model (with a tied embedding plus a layer) and the waiting
 *          bucket: less than --bucket bytes.  A small model fits into one bucket, so all of its gradients wait;
 *          --bucket 1 sends each unit at once.  Optimizer state k n/P
 * Equals   with one microbatch and the default algorithms ddp, bit for bit, including a tied embedding, whose two
 *          gradients are summed before they are reduced.  With several microbatches the gradient is the sum over
 *          microbatches of sums over devices; in ddp and zero1 it is the sum over devices of sums over microbatches.
 *          So zero2, zero3 and fsdp equal each other, and ddp and zero1 equal each other.
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls zero2_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *zero2_share(struct shards *shards, const struct data_request *request)
{
    shards->gradients = shards->optimizer = shard_group(shards, request);
    return NULL;
}

const struct data_scheme data_scheme_zero2 = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "zero2",
              .description = "gradients in shards too: reduce-scattered and dropped bucket by bucket during backward",
              .source = "ZeRO, arXiv:1910.02054, section 5.2",
              .volume = "(M+1) n (P-1)/P elements a step, M microbatches",
              .memory = "weights n, gradients n/P + the largest part + a bucket, optimizer state k n/P" },
    .share = zero2_share,
};
