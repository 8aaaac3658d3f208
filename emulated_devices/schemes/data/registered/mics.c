/* data parallelism, mics: everything is sharded inside a partition group of N adjacent devices; gradients take two
 * hops, weights are gathered in two levels.
 *
 * Source   Z. Zhang et al., "MiCS: near-linear scaling for training gigantic model on public cloud", arXiv:2205.00119
 * Group    P devices, of which --shard-group N adjacent ones, the partition group, share one copy of the model: the
 *          smallest number into whose memory it fits.  Devices with the same place in all partition groups are a
 *          replication group
 * Shares   N | N | N
 * Layout   as hsdp
 * Sends    weights are gathered inside the partition group.  If it spans several nodes, first between nodes among
 *          devices with the same place, each block once to a node, then inside nodes: --allgather two_level, unless
 *          another one is given.  Gradients take two hops: for every microbatch a reduce-scatter inside the partition
 *          group, and only after the last one an all-reduce across the replication group: 2 n/N (P/N-1)/(P/N) elements
 *          sent, for any number of microbatches.  One hop over all devices for every microbatch would send M times as
 *          much between groups
 * Memory   as hsdp: weights n/N and two parts of the model, gradients n/N and one part, optimizer state k n/N
 * Equals   reassociates: the same bits as hsdp with the same N.  Our hsdp also has the second hop after the last
 *          microbatch; PyTorch's has it after every microbatch, unless set_requires_all_reduce (FSDP2) delays it
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls mics_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *mics_share(struct shards *shards, const struct data_request *request)
{
    shards->weights = shards->gradients = shards->optimizer = shard_group(shards, request);
    return request->group > 0 ? NULL
                        : "give --shard-group N, how many neighbours share one copy of the model: its partition group";
}

const struct data_scheme data_scheme_mics = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "mics",
              .description = "hsdp with gathering in two levels: between nodes, then inside (--allgather two_level); "
                             "gradients in two hops",
              .source = "MiCS, arXiv:2205.00119",
              .volume = "at most 3 M n (N-1)/N inside a partition group, 2 n/N (P/N-1)/(P/N) across, elements a step",
              .memory = "weights n/N + two parts, gradients n/N + one part, optimizer state k n/N" },
    .share = mics_share, .allgather = "two_level",
};
