/* data parallelism, chain: any numbers of devices that share weights, gradients and optimizer state.
 *
 * Source   the general form of ZeRO's three stages, arXiv:1910.02054.  A separate group for each kind of state:
 *          InternEvo, arXiv:2401.09149, which keeps weights whole on small groups and distributes the optimizer's state
 *          (--dp 8 --shards 1,2,8).  With three levels of links, weights inside a pair, gradients inside a node and
 *          optimizer state over all devices: the partitioning for Frontier, arXiv:2501.04266 (--dp 8 --shards 2,4,8 in
 *          nodes of 4)
 * Group    P devices along dp
 * Shares   w | g | o, from --shards W,G,O: each divides the next, O divides P
 * Layout   see shards.h: the digits of a device's rank define what it keeps
 * Sends    per microbatch: gather weights among w (twice), reduce-scatter gradients among w, then among g/w with the
 *          other digits equal.  Per step: reduce-scatter among o/g, all-reduce among P/o; gather weights among o/g,
 *          then g/w.  If adjacent ranks are near each other, the small groups, which send most, have the shortest
 *          distances
 * Memory   weights n/w (and two parts of the model if w > 1), gradients n/g (and one part if g > 1), optimizer state k
 *          n/o
 * Equals   reassociates: gradients are added level by level, in the order of the digits
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls chain_share, and makes an ERR_PLAN of a
 *          text that is returned.
 */
#include "emulated_devices/schemes/data/data.h"

static const char *chain_share(struct shards *shards, const struct data_request *request)
{
    shards->weights = request->shards[0], shards->gradients = request->shards[1],
        shards->optimizer = request->shards[2];
    if (request->group > 0) return "takes --shards W,G,O instead of --shard-group";
    return request->shards[0] > 0 ? NULL
           : "give --shards W,G,O, how many devices share weights, gradients, optimizer state";
}

const struct data_scheme data_scheme_chain = {
    .head = { .kind = DATA_SCHEME, .equality = REASSOCIATES,
              .name = "chain",
              .description = "weights shared by W devices, gradients by G, optimizer state by O: any W | G | O | P",
              .source = "the general form of arXiv:1910.02054; InternEvo's independent groups, arXiv:2401.09149, such "
                        "as --dp 8 --shards 1,2,8; three levels "
              "on Frontier, arXiv:2501.04266, such as --dp 8 --shards 2,4,8",
              .volume = "level by level, each (size-1)/size of what the level before it left",
              .memory = "weights n/W, gradients n/G, optimizer state k n/O; what is gathered besides" },
    .share = chain_share, .any_shards = true,
};
