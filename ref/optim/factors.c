#include "ref/optim/factors.h"
#include <math.h>

/* volatile: gcc 12 for any x86-64 (-O3 without -march) vectorizes several of these and leaves the rounding out. */
static double rounded(double x, bool narrow)
{
    const volatile float narrowed = (float)x;
    return narrow ? (double)narrowed : x;
}

struct adam_factors adam_factors(struct step s)
{
    const struct hyperparameters *h = s.hyper;
    const struct conventions *as = &h->as;
    const bool narrow = convention(as, FACTORS) == FACTORS_FP32;
    const bool corrects = convention(as, BIAS_CORRECTION) == CORRECTION_YES;
    const bool raw = convention(as, EPS_PLACE) == EPS_RAW, late = convention(as, DECAY_PLACE) == DECAY_AFTER;
    const double beta1 = rounded(h->beta1, narrow), beta2 = rounded(h->beta2, narrow), t = (double)s.t;
    /* Bias corrections 1 - beta^t, or 1 where a convention leaves them out. */
    const double c1 = corrects ? rounded(1 - pow(beta1, t), narrow) : 1;
    const double c2 = corrects ? rounded(1 - pow(beta2, t), narrow) : 1;
    const double lr = rounded(s.lr, narrow), keep = 1 - lr * rounded(s.weight_decay, narrow), root = 1 / sqrt(c2);
    /* The correction of m is in rate; that of v in root, and in eps if eps is added to the raw root. */
    return (struct adam_factors){ .beta1 = beta1,
                                  .beta2 = beta2,
                                  .new1 = rounded(1 - beta1, narrow),
                                  .new2 = rounded(1 - beta2, narrow),
                                  .rate = lr / c1,
                                  .root = root,
                                  .eps = rounded(h->eps, narrow) * (raw ? root : 1),
                                  .before = late ? 1 : keep,
                                  .after = late ? keep : 1,
                                  .c1 = c1,
                                  .c2 = c2 };
}

struct sgd_factors sgd_factors(struct step s)
{
    const bool coupled = convention(&s.hyper->as, SGD_DECAY) == SGD_COUPLED;
    return (struct sgd_factors){ .coupled = coupled ? s.weight_decay : 0,
                                 .keep = coupled ? 1 : 1 - s.lr * s.weight_decay };
}
