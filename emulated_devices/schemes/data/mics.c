/* data parallelism, mics: everything in shards inside a partition group of N neighbours, two hops for gradients,
 * weights gathered in two levels.
 *
 * Source   Z. Zhang et al., "MiCS: near-linear scaling for training gigantic model on public cloud", arXiv:2205.00119
 * Group    P devices, of which --shard-group N neighbours, the partition group, share one copy of the model: as few as
 *          it fits on.  Devices with the same place in all partition groups are a replication group
 * Shares   N | N | N
 * Layout   as hsdp
 * Sends    Weights are gathered inside the partition group: where it is on several nodes, first between nodes among
 *          devices with the same place, each block once to a node, then inside nodes; it is --allgather two_level,
 *          unless another is asked for.  Gradients take two hops: for every microbatch a reduce-scatter inside the
 *          partition group, and only after the last one an all-reduce across the replication group: 2 n/N (P/N-1)/(P/N)
 *          elements sent, however many microbatches there are.  One hop, over all devices for every microbatch, would
 *          send M times as much between groups
 * Memory   as hsdp: weights n/N and two parts of the model, gradients n/N and one part, optimizer state k n/N
 * Equals   reassociates: as hsdp with the same N, the same bits.  hsdp has the second hop at the same time; PyTorch's
 *          has it after every microbatch, unless it is told to wait (FSDP2: set_requires_all_reduce)
 */
#include "emulated_devices/schemes/data/data.h"

static const char *share(struct shards *s, const struct data_request *q)
{
    s->weights = s->gradients = s->optimizer = shard_group(s, q);
    return q->group > 0 ? NULL
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
    .share = share, .allgather = "two_level",
};
