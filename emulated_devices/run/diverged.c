/* diverged.c -- detects numbers that are not finite, and reports them.  session.c calls these functions.
 * ERR_DIVERGED names the step and the number that is not finite. */
#include "emulated_devices/run/run.h"
#include <math.h>
#include <stdio.h>

static void diverged_set(struct divergence *divergence, int64_t step, const char *what, double value)
{
    *divergence = (struct divergence){ .step = step, .what = what, .value = fabs(value) };      /* NaN without a sign */
}

/* Loss scaling skips a step whose gradients overflow, and tries the next one with a smaller scale.  That is normal, as
 * long as there is a smaller scale. */
bool step_diverges(const struct optimizer *optimizer, int64_t step, const struct step_result *result,
                   struct divergence *divergence)
{
    const double other = optimizer_draws(optimizer) ? result->slope : result->norm;
    if (result->skipped && result->loss_scale > LOSS_SCALE_LEAST) return false;
    if (!isfinite(result->loss)) diverged_set(divergence, step, "loss", result->loss);
    else if (!isfinite(other))
        diverged_set(divergence, step, optimizer_draws(optimizer) ? "slope" : "norm of the gradients", other);
    divergence->lost = result->lost;
    divergence->lost_layer = result->lost_layer, divergence->lost_row = result->lost_row;
    return divergence->what != NULL;
}

/* Divergence that no step shows: the last step was skipped, or made the weights or the optimizer's state infinite. */
void find_divergence(struct train_record *record)
{
    const int64_t step = record->first_step + record->steps;
    const double loss = record->steps > 0 ? record->step[record->steps - 1].loss : 0;
    if (record->divergence.what) return;
    if (!isfinite(loss)) {
        diverged_set(&record->divergence, step, "loss", loss);
        record->divergence.lost = record->step[record->steps - 1].lost;
    } else if (!isfinite(record->validation))
        diverged_set(&record->divergence, step, "loss on held-out text", record->validation);
    else if (record->comparison.diverged)
        diverged_set(&record->divergence, record->comparison.divergence.step, "largest number", INFINITY);
}

/* Exact sums have an end, which finite numbers can reach: that is not divergence. */
static enum error_code fail_beyond(const struct train_record *record, struct error *err)
{
    const struct divergence *d = &record->divergence;
    return fail(err, ERR_CHECK, "step %lld: %s: an exact sum is beyond the bits there are (docs/checking/exact.md), so "
                "the %s is %g; try a smaller --lr than %g, or --arithmetic ordinary%s", (long long)d->step, d->lost.name,
                d->what, d->value, record->options->plan.hyper.lr, record->options->save ? "; nothing was saved" : "");
}

enum error_code fail_diverged(const struct train_record *record, struct error *err)
{
    const struct train_options *o = record->options;
    const struct divergence *d = &record->divergence;
    const bool clip = o->plan.hyper.clip == 0 && !o->plan.optimizer->forward_only;
    char beside[240] = "", name[128], lost[160] = "";
    if (record->comparison.diverged)
        snprintf(beside, sizeof beside,
                 ", and so did the one-device run, first in %s at step %lld: that is not the plan's fault",
                 spread_name(name, sizeof name, &record->comparison.divergence),
                 (long long)record->comparison.divergence.step);
    if (d->lost.name[0] && d->lost.beyond) return fail_beyond(record, err);
    if (d->lost.name[0])
        snprintf(lost, sizeof lost, ", first in an exact sum of %s with a term that is not finite", d->lost.name);
    if (d->lost_layer > 0)
        snprintf(lost, sizeof lost, ", first in the router of layer %lld, in row %lld of the batch",
                 (long long)d->lost_layer - 1, (long long)d->lost_row);
    return fail(err, ERR_DIVERGED, "step %lld: the %s is %g%s: training diverged%s; try a smaller --lr than %g%s%s",
                (long long)d->step, d->what, d->value, lost, beside, o->plan.hyper.lr, clip ? ", or --clip 1" : "",
                o->save ? "; nothing was saved" : "");
}
