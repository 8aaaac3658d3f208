/* factors.c -- the factors of a step of AdamW, SGD or momentum, by the conventions.
 *
 * adamw.c, sgd.c, the CUDA backend and check/recompute/ use them, so that all step with the same numbers.  No
 * function returns an error code.
 */
#include "ref/optim/factors.h"
#include "ref/exact/scalars.h"
#include <math.h>

/* volatile: gcc 12 for any x86-64 (-O3 without -march) vectorizes several of these and leaves the rounding out. */
static double factors_rounded(double x, bool narrow)
{
    const volatile float narrowed = (float)x;
    return narrow ? (double)narrowed : x;
}

/* Everything that depends on the step alone is computed once here, not for each element. */
struct adam_factors adam_factors(struct step step)
{
    const struct hyperparameters *h = step.hyper;
    const struct conventions *as = &h->as;
    const bool narrow = convention(as, FACTORS) == FACTORS_FP32;
    const bool corrects = convention(as, BIAS_CORRECTION) == CORRECTION_YES;
    const bool raw = convention(as, EPS_PLACE) == EPS_RAW, late = convention(as, DECAY_PLACE) == DECAY_AFTER;
    const double beta1 = factors_rounded(h->beta1, narrow), beta2 = factors_rounded(h->beta2, narrow),
        t = (double)step.t;
    /* Bias corrections 1 - beta^t, or 1 where a convention leaves them out. */
    const double c1 = corrects ? factors_rounded(1 - scalar_power(beta1, t), narrow) : 1;
    const double c2 = corrects ? factors_rounded(1 - scalar_power(beta2, t), narrow) : 1;
    const double lr = factors_rounded(step.lr, narrow), keep = 1 - lr * factors_rounded(step.weight_decay, narrow),
        root = 1 / sqrt(c2);
    /* The correction of m is in rate; that of v in root, and in eps if eps is added to the raw root. */
    return (struct adam_factors){ .beta1 = beta1,
                                  .beta2 = beta2,
                                  .new1 = factors_rounded(1 - beta1, narrow),
                                  .new2 = factors_rounded(1 - beta2, narrow),
                                  .rate = lr / c1,
                                  .root = root,
                                  .eps = factors_rounded(h->eps, narrow) * (raw ? root : 1),
                                  .before = late ? 1 : keep,
                                  .after = late ? keep : 1,
                                  .c1 = c1,
                                  .c2 = c2 };
}

/* Coupled decay is added to the gradient; decoupled decay multiplies the weight. */
struct sgd_factors sgd_factors(struct step step)
{
    const bool coupled = convention(&step.hyper->as, SGD_DECAY) == SGD_COUPLED;
    return (struct sgd_factors){ .coupled = coupled ? step.weight_decay : 0,
                                 .keep = coupled ? 1 : 1 - step.lr * step.weight_decay };
}
