/* low_rank.c -- checks of the rank, refresh and history of an optimizer that projects whole matrices.
 *
 * plan_check calls.  ERR_PLAN names the flag and its range.
 */
#include "emulated_devices/plan/plan.h"
#include "ref/model/params.h"
#include "ref/optim/galore.h"

/* The shorter side of the largest matrix: no matrix can use a higher rank. */
static int64_t largest_rank(const struct model_config *config)
{
    int64_t most = 0;
    for (int i = 0; i < model_param_count(config); i++) {
        const struct param_spec s = model_param(config, i);
        for (int k = 0; k < s.parts && param_is_linear(&s); k++) {
            const int64_t shorter = s.part[k].rows < s.dim[1] ? s.part[k].rows : s.dim[1];
            if (shorter > most) most = shorter;
        }
    }
    return most;
}

enum error_code plan_check_low_rank(const struct plan *plan, struct error *err)
{
    if (!plan->optimizer->low_rank) return OK;
    const struct hyperparameters *h = &plan->hyper;
    const int64_t most = largest_rank(&plan->model);
    if (h->rank < 1 || h->rank > most)
        return fail(err, ERR_PLAN, "--rank %lld: must be 1 to %lld, the longest shorter side of a matrix of model %s",
                    (long long)h->rank, (long long)most, plan->model.name);
    if (h->refresh < 1) return fail(err, ERR_PLAN, "--refresh %lld: must be at least 1 step", (long long)h->refresh);
    if (!(h->galore_scale > 0)) return fail(err, ERR_PLAN, "--galore-scale %g: must be above 0", h->galore_scale);
    /* Only natural-galore keeps a history of projected gradients, and damps. */
    if (!plan->optimizer->natural) return OK;
    if (h->history < 1 || h->history > LOW_RANK_MOST_HISTORY)
        return fail(err, ERR_PLAN, "--history %lld: must be 1 to %d projected gradients", (long long)h->history,
                    LOW_RANK_MOST_HISTORY);
    return h->damping > 0 ? OK : fail(err, ERR_PLAN, "--damping %g: must be above 0", h->damping);
}
