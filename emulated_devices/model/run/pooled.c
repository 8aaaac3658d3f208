/* pooled.c -- counts the choices of an ep group by arithmetic.  run_mixture.c calls; without memory nothing is known,
 * and the devices list choices as they do with any other load. */
#include "emulated_devices/model/run/pooled.h"
#include "emulated_devices/schemes/experts/experts.h"
#include "ref/model/config.h"
#include "ref/model/load.h"
#include <stdlib.h>
#include <string.h>

struct pooled_choices *pooled_open(int columns)
{
    struct pooled_choices *const p = calloc(1, sizeof *p + (size_t)columns * sizeof p->count[0]);
    if (p) p->micro = -1;
    return p;
}

bool pooled_add(const struct plan *plan, int rank, int micro, int32_t *count)
{
    const struct tensor_parallel tp = plan_tensor_share(plan, rank);
    const struct expert_parallel ep = plan_expert_share(plan, &tp, rank);
    struct intervals all = plan_rows(plan, rank, micro), rows = { 0 }, own = { 0 };
    intervals_add_part(&rows, &all, tensor_rows_at(&tp, STREAM, intervals_total(&all)));
    intervals_add_part(&own, &rows, expert_share(&ep, intervals_total(&rows)));
    bool known = !intervals_lost(&all) && !intervals_lost(&rows) && !intervals_lost(&own);
    for (int i = 0; i < own.count && known; i++)
        known = load_count(plan->load, &plan->model, own.at[i].first, own.at[i].count, count);
    intervals_free(&all), intervals_free(&rows), intervals_free(&own);
    return known;
}

const int32_t *pooled_choices(const struct node_call *call, const struct expert_parallel *ep)
{
    struct pooled_choices *const p = call->stage->routers.pooled;
    const struct plan *const plan = call->stage->plan;
    const int micro = (int)(call->micro - call->stage->micro);
    /* Samples of other lengths, or another order of rows, leave each device rows of its own. */
    if (p == NULL || !ep->scheme->weighs_there || plan->lengths || plan->batches) return NULL;
    if (p->micro == micro) return p->known ? p->count : NULL;
    memset(p->count, 0, (size_t)mixture_columns(&plan->model.mixture) * sizeof p->count[0]);
    p->micro = micro, p->known = true;
    for (int m = 0; m < ep->devices && p->known; m++)
        p->known = pooled_add(plan, ep->group->member[m], micro, p->count);
    return p->known ? p->count : NULL;
}
