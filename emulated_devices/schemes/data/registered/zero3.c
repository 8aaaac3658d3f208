/* data parallelism, zero3: weights, gradients and optimizer state are sharded.
 *
 * Source   S. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models",
 *          arXiv:1910.02054, section 5.3 (P_os+g+p); prefetching, and keeping weights after forward: Y. Zhao et al.,
 *          "PyTorch FSDP: experiences on scaling fully sharded data parallel", arXiv:2304.11277
 * Group    P devices with the same pieces of the model and different sequences
 * Shares   P | P | P
 * Layout   of each unit, padded to a multiple of P, device r keeps the r-th part of weights, gradient and optimizer
 *          state
 * Sends    per microbatch an all-gather of a unit's weights before its forward pass, another one before its backward
 *          pass for the input, and a reduce-scatter of its gradient: 3 n (P-1)/P elements.  Two parts need no second
 *          gathering: the embedding, which has no backward pass for an input, and the part whose backward directly
 *          follows its forward.  While a part computes, the next one is gathered on the communication stream, unless
 *          --prefetch no.
 *          --reshard-after-forward no: weights stay until their backward pass; 2 n (P-1)/P
 *          --tiles T: tile by tile instead; fewer gatherings can be omitted (tiles.h)
 * Memory   weights n/P and two parts of the model (one without prefetching; --tiles T: two tiles), gradients n/P and
 *          one part (with a tied embedding plus a layer), state k n/P
 * Equals   as zero2; gathering permutes
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls zero3_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *zero3_share(struct shards *shards, const struct data_request *request)
{
    shards->weights = shards->gradients = shards->optimizer = shard_group(shards, request);
    return NULL;
}

const struct data_scheme data_scheme_zero3 = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "zero3",
              .description = "weights in shards too: gathered before each part's forward and backward, the next part "
                             "meanwhile",
              .source = "ZeRO, arXiv:1910.02054, section 5.3", .volume = "at most 3 M n (P-1)/P elements a step",
              .memory = "weights n/P + two parts, gradients n/P + one part, optimizer state k n/P" },
    .share = zero3_share,
};
