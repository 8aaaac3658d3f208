/* data parallelism, hsdp: everything is sharded inside a group of N adjacent devices, and copied across groups.
 *
 * Source   Y. Zhao et al., "PyTorch FSDP: experiences on scaling fully sharded data parallel", arXiv:2304.11277,
 *          section 3.2 (hybrid sharding)
 * Group    P devices, of which --shard-group N adjacent ones share one copy of the model: usually one node
 * Shares   N | N | N
 * Layout   as zero3 on N devices, P/N times
 * Sends    inside a group as zero3 with N devices.  Across groups, after the last microbatch, an all-reduce of each
 *          unit's own part: 2 n/N (P/N-1)/(P/N) elements sent; nothing else leaves a node
 * Memory   weights n/N and two parts of the model, gradients n/N and one part, optimizer state k n/N
 * Equals   reassociates: gradients are summed inside groups, then across them.  Schemes with the same N have the same
 *          tree of additions, and so the same bits
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls hsdp_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *hsdp_share(struct shards *shards, const struct data_request *request)
{
    shards->weights = shards->gradients = shards->optimizer = shard_group(shards, request);
    return request->group > 0 ? NULL : "give --shard-group N, how many neighbours share one copy of the model";
}

const struct data_scheme data_scheme_hsdp = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "hsdp", .description = "zero3 inside groups of N neighbours, copies across groups",
              .source = "PyTorch FSDP, arXiv:2304.11277, hybrid sharding",
              .volume = "at most 3 M n (N-1)/N inside a group, 2 n/N (P/N-1)/(P/N) across, elements a step",
              .memory = "weights n/N + two parts, gradients n/N + one part, optimizer state k n/N" },
    .share = hsdp_share,
};
