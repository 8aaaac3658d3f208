/* every.c -- the planner that looks at every plan by layers: all cuts into stages, all devices of each, all strategies
 * of each layer.  The other planners of this folder are held to it (verify/cases/planned.c).
 *
 * ERR_PLAN says that there are more plans than EVERY_MOST.
 */
#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/planner.h"
#include <stdlib.h>

enum { EVERY_MOST = 20000000 };

void layer_search_free(struct layer_search *search)
{
    free(search->point), free(search->slot);
    search->point = NULL, search->slot = NULL, search->points = 0;
}

void layer_search_offer(struct layer_search *search, const struct layer_plan *plan)
{
    struct layer_verdict v;
    search->looked++;
    if (!layer_plan_judge(search->table, plan, &v) || (search->memory > 0 && v.memory > search->memory)) return;
    if (search->found && (v.time > search->verdict.time ||
                          (v.time == search->verdict.time && v.memory >= search->verdict.memory))) return;
    search->found = true, search->best = *plan, search->verdict = v;
}

bool layer_plan_evenly(const struct layer_table *table, int devices, struct layer_plan *plan)
{
    const int stages = table->devices / devices;
    if (table->devices % devices != 0 || stages > STAGES_MOST || stages > table->layers) return false;
    if (table->link && stages > 1) return false;
    plan->stages = stages;
    for (int s = 0; s < stages; s++) plan->first[s] = s * (table->layers / stages), plan->devices[s] = devices;
    plan->first[stages] = table->layers;
    return true;
}

/* ---- all plans --------------------------------------------------------------------------------------------------- */

struct every {
    const struct layer_table *table;
    struct layer_plan plan;
    int64_t seen, most;
    layer_plan_fn *each;
    void *context;
};

static void every_stage(struct every *every, int layer, int before);

/* Give the layers of the last stage from `layer` on every strategy, then go on with the stages behind it. */
static void every_strategy(struct every *every, int layer, int end, int before)
{
    const struct layer_table *const table = every->table;
    const int devices = every->plan.devices[every->plan.stages - 1];
    if (layer == end) {
        every_stage(every, end, before + devices);
        return;
    }
    for (int s = 0; s < table->strategies && every->seen <= every->most; s++)
        if (table->strategy[s].devices == devices && layer_cost_of(table, layer, s)->there) {
            every->plan.strategy[layer] = s;
            every_strategy(every, layer + 1, end, before);
        }
}

static void every_stage(struct every *every, int layer, int before)
{
    const struct layer_table *const table = every->table;
    struct layer_plan *const plan = &every->plan;
    struct layer_verdict v;
    if (layer == table->layers) {
        plan->first[plan->stages] = layer;
        if (!layer_plan_judge(table, plan, &v) || ++every->seen > every->most) return;
        every->each(every->context, plan, &v);
        return;
    }
    if (plan->stages == STAGES_MOST) return;
    plan->first[plan->stages++] = layer;
    for (int z = 0; z < table->sizes; z++) {
        const int devices = table->size[z];
        if (before + devices > table->devices || !layer_stage_begins(before, devices)) continue;
        for (int end = table->link ? table->layers : layer + 1; end <= table->layers; end++) {
            plan->devices[plan->stages - 1] = devices;
            every_strategy(every, layer, end, before);
        }
    }
    plan->stages--;
}

int64_t layer_plans_each(const struct layer_table *table, int64_t most, layer_plan_fn *each, void *context)
{
    struct every every = { table, { .stages = 0 }, 0, most, each, context };
    every_stage(&every, 0, 0);
    return every.seen;
}

/* ---- the planner ------------------------------------------------------------------------------------------------- */

static void every_offer(void *context, const struct layer_plan *plan, const struct layer_verdict *verdict)
{
    (void)verdict;
    layer_search_offer(context, plan);
}

/* How many plans there are, without making them: the last stages first. */
static double every_count(const struct layer_table *table, int layer, int before, double *known)
{
    double *const at = &known[layer * (table->devices + 1) + before], sum = 0;
    if (layer == table->layers) return before == table->devices;
    if (*at >= 0) return *at;
    for (int z = 0; z < table->sizes; z++) {
        const int devices = table->size[z];
        double ways = 1;
        if (before + devices > table->devices || !layer_stage_begins(before, devices)) continue;
        for (int end = layer + 1; end <= table->layers && ways > 0; end++) {
            int there = 0;
            for (int s = 0; s < table->strategies; s++)
                there += table->strategy[s].devices == devices && layer_cost_of(table, end - 1, s)->there;
            ways *= there;
            if (table->link == NULL || (layer == 0 && end == table->layers))
                sum += ways * every_count(table, end, before + devices, known);
        }
    }
    return *at = sum;
}

static enum error_code every_solve(struct layer_search *search, struct error *err)
{
    const struct layer_table *const table = search->table;
    const int cells = (table->layers + 1) * (table->devices + 1);
    double *const known = malloc((size_t)cells * sizeof *known);
    if (known == NULL) return fail(err, ERR_MEMORY, "no memory to count plans by layers");
    for (int i = 0; i < cells; i++) known[i] = -1;
    const double plans = every_count(table, 0, 0, known);
    free(known);
    if (plans > EVERY_MOST)
        return fail(err, ERR_PLAN, "--planner every-layer: there are %.2g plans by layers, more than %d; take fewer "
                    "layers or devices, or --planner alpa, which finds as fast a plan", plans, EVERY_MOST);
    layer_plans_each(table, EVERY_MOST, every_offer, search);
    return OK;
}

const struct planner planner_every_layer = {
    .name = "every-layer", .description = "every plan whose layers have strategies of their own",
    .source = "none: the definition of the search",
    .promise = "no plan by layers is faster by the table, and fits",
    .solve = every_solve, .exact_of = LAYERS_ALL,
};
