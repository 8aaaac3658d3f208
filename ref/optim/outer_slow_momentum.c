/* Slow momentum: the outer step of SlowMo.
 *
 * Source  J. Wang et al., "SlowMo: improving communication-efficient distributed SGD with slow momentum",
 *         arXiv:1910.00643, algorithm 1; released as pytorch/torchdistx, slowmo/slowmo_optimizer.py
 * Step    m      = momentum m + g / rate
 *         anchor = anchor - lr rate m                 rate: the inner one, as the released code has it of the round's
 *                                                     last step
 * Called  schemes/data/registered/slowmo.c uses the rule; ref/optim/outer.c calls it for the one-device run.
 */
#include "ref/optim/outer.h"

static void slow_momentum(const struct outer *outer, double rate, double g, double *anchor, double *m)
{
    *m = outer->momentum * *m + g / rate;
    *anchor -= outer->lr * rate * *m;
}

const struct outer_rule outer_slow_momentum = { .momentum = true, .step = slow_momentum };
