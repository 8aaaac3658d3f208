/* data parallelism, zero2: optimizer state and gradients in shards.
 *
 * Source   S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", arXiv:1910.02054,
 *          section 5.2 (P_os+g)
 * Group    P devices with the same pieces of the model and different sequences
 * Shares   1 | P | P
 * Layout   weights whole on every device; of each unit, padded to a multiple of P, device r keeps the r-th part of the
 *          gradient and of the optimizer's state.  The whole gradient of a part of the model is here only from its backward
 *          pass to its reduce-scatter
 * Talks    per step and microbatch a reduce-scatter of each unit's gradient, right after its backward pass; after the step
 *          an all-gather of the weights.  n (P-1)/P (M+1) elements sent with M microbatches: with one, as in ddp
 * Memory   weights n, gradients n/P and the largest part of the model, optimizer state k n/P
 * Equals   reassociates: the gradient is the sum over passes of sums over devices, each in the order of the reduce-scatter;
 *          passes are microbatches, and the two uses of a tied embedding.  Where there is one pass, and algorithms add in the
 *          order of ranks, the bits of ddp.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *share(struct shards *s, const struct data_request *q)
{
    s->gradients = s->optimizer = shard_group(s, q);
    return NULL;
}

const struct data_scheme data_scheme_zero2 = {
    .name = "zero2", .description = "gradients in shards too: reduce-scattered and dropped unit by unit during backward",
    .source = "ZeRO, arXiv:1910.02054, section 5.2",
    .memory = "weights n, gradients n/P + the largest part, optimizer state k n/P",
    .volume = "(M+1) n (P-1)/P elements a step, M microbatches", .share = share,
};
