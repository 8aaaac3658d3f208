/* data parallelism, zero1: the optimizer's state is sharded.
 *
 * Source   S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
 *          arXiv:1910.02054, section 5.1 (P_os)
 * Group    P devices with the same pieces of the model and different sequences
 * Shares   1 | 1 | P
 * Layout   weights and gradients whole on every device; of each unit, padded to a multiple of P, device r has the r-th
 *          part of the optimizer's state
 * Sends    per step, in buckets of up to --bucket bytes (bucket.h), last layer first: a reduce-scatter of the gradients
 *          when the last microbatch's backward pass has added to them (on the communication stream, beside the
 *          following passes); after the step an all-gather of the weights, also in buckets.  Each of the two sends n
 *          (P-1)/P elements, n with padding; together 2 n (P-1)/P, as in ddp
 * Memory   weights n, gradients n, optimizer state k n/P
 * Equals   ddp, bit for bit, including the norm and clipping, for every --bucket, with the default algorithms or others
 *          that add in the order of ranks.  With other algorithms sums reassociate and depend on the bucket.
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls zero1_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *zero1_share(struct shards *shards, const struct data_request *request)
{
    shards->optimizer = shard_group(shards, request);
    return NULL;
}

const struct data_scheme data_scheme_zero1 = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "zero1",
              .description = "optimizer state in shards: gradients reduce-scattered, weights gathered after the step",
              .source = "ZeRO, arXiv:1910.02054, section 5.1", .volume = "2 n (P-1)/P elements a step",
              .memory = "weights n, gradients n, optimizer state k n/P" },
    .share = zero1_share,
};
