/* data parallelism, fsdp: as zero3, but each parameter is cut by rows.
 *
 * Source   the second generation of PyTorch's fully sharded data parallel, torch.distributed.fsdp.fully_shard, which
 *          cuts each parameter in dimension 0; for the first generation, which is flat: Y. Zhao et al.,
 *          arXiv:2304.11277
 * Group    P devices with the same pieces of the model and different sequences
 * Shares   P | P | P, by rows
 * Layout   of a parameter with m rows device r has rows r c .. r c + c - 1 with c = ceil(m/P): the last devices may
 *          have fewer, or none.  So each shard is a box of its parameter, independent of the unit's other parameters
 * Sends    as zero3, on rows padded to c P for each parameter.  Gathered weights are copied to the whole parameters,
 *          and gradients are copied back before they are reduced; the flat order needs no such copies
 * Memory   as zero3, with each parameter's padding, and the gathered row besides its copy while it is copied
 * Equals   as zero3, bit for bit, with the default algorithms or others that add in the order of ranks
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls fsdp_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *fsdp_share(struct shards *shards, const struct data_request *request)
{
    shards->weights = shards->gradients = shards->optimizer = shard_group(shards, request);
    return NULL;
}

const struct data_scheme data_scheme_fsdp = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "fsdp",
              .description = "zero3 with each parameter cut by rows, dimension 0, instead of flat units",
              .source = "torch.distributed.fsdp.fully_shard; arXiv:2304.11277",
              .volume = "at most 3 M n (P-1)/P elements a step",
              .memory = "weights n/P + two parts, gradients n/P + one part, optimizer state k n/P; each parameter "
                        "padded" },
    .rows = true, .share = fsdp_share,
};
