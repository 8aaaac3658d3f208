/* data parallelism, buff: weights and gradients in shards over W neighbours, whatever number of devices shares the
 * sequences; optimizer state over all devices.  With --attention ulysses it is InternEvo's sequence parallelism (isp).
 *
 * Source   InternEvo (Buff), "InternEvo: efficient long-sequence large language model training via hybrid parallelism
 *          and redundant sharding", arXiv:2401.09149; InternLM/InternEvo, core/parallel/comm/isp.py: tensor.size is
 *          --cp, weight.size W, zero1.size O/W, of which -1, all, is the default
 * Group    P = dp x cp devices, cp varying fastest: W adjacent ones may be a part of those that share sequences, these
 *          themselves, or several times as many
 * Shares   W | W | P; W is --shard-group, by default cp.  --shards W,G,O as chain: the paper chooses each by itself
 * Layout   shards.h.  W divides O also in the released code, whose optimizer groups are O/W devices W apart
 * Sends    per microbatch, a block of n elements: forward gathers weights, backward gathers them again and
 *          reduce-scatters gradients, each n (W-1)/W.  With n = 12 D^2 and ulysses over P devices 36 D^2 (W-1)/W and
 *          8 B S D (P-1)/P^2; --tensor 1d-sp-keep sends 8 B S D (P-1)/P, and more than buff with W = P
 *          if B S (1 - 1/P) > 4.5 D.  Per step: as chain
 * Memory   weights n/W and two blocks, the current one and the next one, which is gathered meanwhile: the released
 *          code's memory pool of two slots; gradients n/W and one part, optimizer state k n/O
 * Equals   chain with the same numbers, bit for bit: buff is that choice of them
 * Differs  from the released code, which cuts each linear layer by rows and has norms and biases whole; gathers the
 *          next block when attention of this one is done, and backward layer by layer; gives whole tensors to optimizer
 *          devices.  Here a block is one row
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls buff_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *buff_share(struct shards *shards, const struct data_request *request)
{
    const int cp = request->context > 0 ? request->context : shards->P;
    shards->weights = shards->gradients = request->group > 0 ? request->group : cp;
    shards->optimizer = shards->P;
    if (request->shards[0] == 0) return NULL;
    shards->weights = request->shards[0], shards->gradients = request->shards[1],
        shards->optimizer = request->shards[2];
    return request->group > 0 ? "takes --shards W,G,O or --shard-group W, not both" : NULL;
}

const struct data_scheme data_scheme_buff = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "buff",
              .description = "weights and gradients in shards over W neighbours, by default cp, whoever shares "
                             "sequences; optimizer state over all: InternEvo's isp with --attention ulysses",
              .source = "InternEvo (Buff), arXiv:2401.09149",
              .volume = "3 M n (W-1)/W elements a step, and as chain W | W | P across groups of W",
              .memory = "weights n/W + two blocks, gradients n/W + one part, optimizer state k n/P" },
    .share = buff_share, .any_shards = true,
};
