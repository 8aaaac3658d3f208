/* data parallelism, diloco: copies train apart; every H steps the mean of their changes is the gradient of a step with
 * Nesterov's momentum.
 *
 * Source   A. Douillard et al., "DiLoCo: distributed low-communication training of language models", arXiv:2311.08105,
 *          algorithm 1: H = 500, AdamW inside, outside Nesterov's momentum 0.9 with learning rate 0.7
 * Group    as local-sgd
 * Shares   as local-sgd
 * Layout   as local-sgd; the device that steps an element also keeps its outer momentum
 * Sends    as local-sgd
 * Memory   as local-sgd, and the outer momentum: n/N
 * Counts   as local-sgd
 * Ends     as local-sgd
 * Equals   reassociates: ref/model/local.h, with replicas added in the order of the all-reduce.  With a single replica
 *          it is the Lookahead optimizer (M. Zhang et al., arXiv:1907.08610) with momentum
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls share_replica, and makes an ERR_PLAN of
 *          a text that is returned.  stages/outer.c calls the function for the outer step, and returns its errors.
 */
#include "emulated_devices/schemes/data/data.h"

static struct outward nesterov(const struct outer *outer, double rate)
{
    (void)rate;
    return (struct outward){ .keep = outer->momentum, .take = 1, .by_way = outer->lr,
                            .by_momentum = outer->lr * outer->momentum };
}

const struct data_scheme data_scheme_diloco = {
    .head = { .kind = DATA_SCHEME, .equality = DIFFERS,
              .name = "diloco",
              .description = "copies train apart; after every H steps (--local-steps, 500) the mean of their ways is "
                             "Nesterov's gradient (--outer-lr 0.7, --outer-momentum 0.9)",
              .source = "DiLoCo, arXiv:2311.08105", .volume = "as local-sgd",
              .memory = "as local-sgd, and the outer momentum: n/N elements" },
    .share = share_replica, .outward = nesterov,
    .outer = { .rule = &outer_nesterov, .every = 500, .lr = 0.7, .momentum = 0.9 },
};
