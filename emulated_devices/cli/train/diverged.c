/* diverged.c -- detects numbers that are not finite, and reports them. */
#include "emulated_devices/cli/train/train.h"
#include <math.h>
#include <stdio.h>

static void set(struct divergence *d, int64_t step, const char *what, double value)
{
    *d = (struct divergence){ .step = step, .what = what, .value = fabs(value) };      /* NaN without a sign */
}

/* Loss scaling skips a step whose gradients overflow, and tries the next one with a smaller scale.  That is normal, as
 * long as there is a smaller scale. */
bool step_diverges(const struct optimizer *o, int64_t step, const struct step_result *s, struct divergence *d)
{
    const double other = optimizer_draws(o) ? s->slope : s->norm;
    if (s->skipped && s->loss_scale > LOSS_SCALE_LEAST) return false;
    if (!isfinite(s->loss)) set(d, step, "loss", s->loss);
    else if (!isfinite(other)) set(d, step, optimizer_draws(o) ? "slope" : "norm of the gradients", other);
    d->lost_layer = s->lost_layer, d->lost_row = s->lost_row;
    return d->what != NULL;
}

/* Divergence that no step shows: the last step was skipped, or made the weights or the optimizer's state infinite. */
void find_divergence(struct train_record *r)
{
    const int64_t step = r->first_step + r->steps;
    const double loss = r->steps > 0 ? r->step[r->steps - 1].loss : 0;
    if (r->divergence.what) return;
    if (!isfinite(loss)) set(&r->divergence, step, "loss", loss);
    else if (!isfinite(r->validation)) set(&r->divergence, step, "loss on held-out text", r->validation);
    else if (r->comparison.diverged) set(&r->divergence, r->comparison.divergence.step, "largest number", INFINITY);
}

enum error_code fail_diverged(const struct train_record *r, struct error *err)
{
    const struct train_options *o = r->options;
    const struct divergence *d = &r->divergence;
    const bool clip = o->plan.hyper.clip == 0 && !o->plan.optimizer->forward_only;
    char beside[240] = "", name[128], lost[120] = "";
    if (r->comparison.diverged)
        snprintf(beside, sizeof beside,
                 ", and so did the one-device run, first in %s at step %lld: that is not the plan's fault",
                 spread_name(name, sizeof name, &r->comparison.divergence), (long long)r->comparison.divergence.step);
    if (d->lost_layer > 0)
        snprintf(lost, sizeof lost, ", first in the router of layer %lld, in row %lld of the batch",
                 (long long)d->lost_layer - 1, (long long)d->lost_row);
    return fail(err, ERR_DIVERGED, "step %lld: the %s is %g%s: training diverged%s; try a smaller --lr than %g%s%s",
                (long long)d->step, d->what, d->value, lost, beside, o->plan.hyper.lr, clip ? ", or --clip 1" : "",
                o->save ? "; nothing was saved" : "");
}
