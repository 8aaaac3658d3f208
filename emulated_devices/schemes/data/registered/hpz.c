/* data parallelism, hpz: weights are sharded inside a group of N adjacent devices, gradients and optimizer state over
 * all devices.
 *
 * Source   G. Wang et al., "ZeRO++: extremely efficient collective communication for giant model training",
 *          arXiv:2306.10209 (hierarchical partitioning, hpZ)
 * Group    P devices, of which --shard-group N adjacent ones (a node) share one copy of the weights
 * Shares   N | P | P
 * Layout   device r keeps part r mod N of N of each unit's weights; of this part it keeps gradient and optimizer state
 *          of piece r div N of P/N
 * Sends    weights are gathered inside the group only.  Gradients are reduce-scattered inside it, then across groups;
 *          after the step new weights are gathered across groups: n/N (P/N-1)/(P/N) elements sent.  ZeRO++ instead
 *          gathers the first forward pass's weights from all devices and keeps them as its secondary copy: n elements
 *          instead of n/N.  With --quantize-weights int8 --quantize-gradients int4, traffic across groups is 1/4 of
 *          zero3's in 16 bits, without scales (the paper's 0.5 M + 0 + 0.25 M against 3 M)
 * Memory   weights n/N and two parts of the model, gradients n/P and one part, optimizer state k n/P
 * Equals   as hsdp; with the same N and one microbatch the same bits as hsdp
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls hpz_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *hpz_share(struct shards *shards, const struct data_request *request)
{
    shards->weights = shard_group(shards, request);
    shards->gradients = shards->optimizer = shards->P;
    return request->group > 0 ? NULL : "give --shard-group N, how many neighbours share one copy of the weights";
}

const struct data_scheme data_scheme_hpz = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "hpz",
              .description = "weights in shards inside groups of N neighbours, the rest in shards over all",
              .source = "ZeRO++, arXiv:2306.10209",
              .volume = "at most 3 M n (N-1)/N inside a group, (M+1) n/N (P/N-1)/(P/N) across, elements a step",
              .memory = "weights n/N + two parts, gradients n/P + one part, optimizer state k n/P" },
    .share = hpz_share,
};
