/* data parallelism, slowmo: copies train apart; after every H steps the mean of their ways, over the learning rate,
 * goes into a momentum that steps them all.
 *
 * Source   J. Wang, V. Tantia, N. Ballas, M. Rabbat, "SlowMo: improving communication-efficient distributed SGD with
 *          slow momentum", arXiv:1910.00643, algorithm 1; released as pytorch/torchdistx, slowmo/slowmo_optimizer.py,
 *          with H = 48, momentum 0.5 and learning rate 1
 * Group    as local-sgd
 * Shares   as local-sgd
 * Layout   as diloco
 * Sends    as local-sgd
 * Memory   as diloco
 * Counts   as local-sgd
 * Rate     of the optimizer inside, in the step that the outer step follows.  It must not be 0
 * Rounds   end after steps H, 2 H and so on, as in the paper.  The released code ends them after steps 1 + H, 1 + 2 H,
 *          since it counts from 0; after step 1 it averages the copies too, without an outer step
 * Ends     as local-sgd
 * Equals   reassociates: ref/optim/outer_slow_momentum.c, with replicas added in the order of the all-reduce; with
 *          momentum 0 local-sgd
 * Called   registry.c lists the scheme, and stages/outer.c calls its outward function.  outer.c reports ERR_PLAN, if
 *          the lowest learning rate is 0
 */
#include "emulated_devices/schemes/data/data.h"

static struct outward slow_momentum(const struct outer *outer, double rate)
{
    return (struct outward){ .keep = outer->momentum, .take = 1 / rate, .by_momentum = outer->lr * rate };
}

const struct data_scheme data_scheme_slowmo = {
    .head = { .kind = DATA_SCHEME, .equality = DIFFERS,
              .name = "slowmo",
              .description = "copies train apart; after every H steps (--local-steps, 48) the mean of their ways goes "
                             "into a slow momentum (--outer-lr 1, --outer-momentum 0.5)",
              .source = "SlowMo, arXiv:1910.00643", .volume = "as local-sgd", .memory = "as diloco" },
    .share = share_replica, .outward = slow_momentum,
    .outer = { .rule = &outer_slow_momentum, .every = 48, .lr = 1, .momentum = 0.5 },
};
