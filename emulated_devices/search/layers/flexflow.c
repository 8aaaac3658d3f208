/* flexflow.c -- FlexFlow: a walk over strategies by Monte Carlo, on one stage.
 *
 * The walk begins with copies of the model.  A proposal gives one drawn layer a drawn strategy; or, one time in four,
 * it carries a drawn layer's strategy on to the layers behind it, each with probability 3/4.  A slower plan is taken
 * with probability exp(-alpha x difference).  After each hundredth part of the walk it goes on from the best plan.
 *
 * A difference is a part of the first plan's time (released.h).  What a plan has above the memory adds its share of the
 * memory to the time, likewise.
 *
 * Apart from the others: it needs no order of layers, and promises nothing.
 *
 * Source   Z. Jia et al., FlexFlow, arXiv:1807.05358, section 6; src/runtime/model.cc, optimize()
 */
#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/layers/released.h"
#include "emulated_devices/search/planner.h"
#include "ref/numeric/philox.h"
#include <math.h>

/* So long a walk finds the optimum of 6 layers with 8 strategies in most cases, and takes 30 ms with 80 layers. */
enum { PROPOSALS = 20000, PARTS_OF_WALK = 100 };
static const double PROPAGATES = 0.25, GOES_ON = 0.75;

struct walker {
    const struct layer_search *search;
    struct layer_plan now;
    double cost, scale;                 /* of `now`; of a difference that is all of the first plan */
    uint64_t next;                      /* number to draw */
    int strategies, strategy[STRATEGIES_MOST];  /* on all devices */
};

static double walk_draw(struct walker *walker)
{
    return random_uniform(walker->search->seed, 61, walker->next++);
}

static int walk_below(struct walker *walker, int n) { return (int)(walk_draw(walker) * n); }

/* Time, and what lacks in memory as a share of the first plan's time; infinite: there is no such plan. */
static double walk_cost(const struct walker *walker, const struct layer_plan *plan)
{
    const uint64_t memory = walker->search->memory;
    struct layer_verdict v;
    if (!layer_plan_judge(walker->search->table, plan, &v)) return INFINITY;
    const double above = memory > 0 && v.memory > memory ? (double)(v.memory - memory) / (double)memory : 0;
    return (double)v.time + above * walker->scale;
}

static void propose(struct walker *walker, struct layer_plan *plan)
{
    const struct layer_table *const table = walker->search->table;
    const int layer = walk_below(walker, table->layers);
    if (walk_draw(walker) >= PROPAGATES) {
        plan->strategy[layer] = walker->strategy[walk_below(walker, walker->strategies)];
        return;
    }
    for (int l = layer + 1; l < table->layers && walk_draw(walker) < GOES_ON; l++)
        if (layer_cost_of(table, l, plan->strategy[layer])->there) plan->strategy[l] = plan->strategy[layer];
}

/* Every layer has copies only, if it can; else the first strategy that is there. */
static void begin_walk(struct walker *walker)
{
    const struct layer_table *const table = walker->search->table;
    struct layer_plan *const plan = &walker->now;
    plan->stages = 1, plan->first[0] = 0, plan->first[1] = table->layers, plan->devices[0] = table->devices;
    for (int l = 0; l < table->layers; l++) {
        int chosen = -1;
        for (int i = 0; i < walker->strategies; i++) {
            const int s = walker->strategy[i];
            const bool copies = table->strategy[s].axis[DP] == table->devices;
            if (layer_cost_of(table, l, s)->there && (chosen < 0 || (copies && table->strategy[chosen].axis[DP] !=
                                                                     table->devices))) chosen = s;
        }
        plan->strategy[l] = chosen >= 0 ? chosen : 0;
    }
}

static enum error_code flexflow_solve(struct layer_search *search, struct error *err)
{
    struct walker walker = { .search = search };
    (void)err;
    for (int s = 0; s < search->table->strategies; s++)
        if (search->table->strategy[s].devices == search->table->devices) walker.strategy[walker.strategies++] = s;
    if (walker.strategies == 0) return OK;
    begin_walk(&walker);
    walker.scale = walk_cost(&walker, &walker.now);
    walker.cost = walker.scale = walk_cost(&walker, &walker.now);
    struct layer_plan best = walker.now;
    double least = walker.cost;
    for (int i = 1; i <= PROPOSALS && isfinite(walker.scale); i++) {
        struct layer_plan plan = walker.now;
        propose(&walker, &plan);
        const double cost = walk_cost(&walker, &plan);
        if (cost < walker.cost || flexflow_accepts((cost - walker.cost) / walker.scale, walk_draw(&walker)))
            walker.now = plan, walker.cost = cost;
        layer_search_offer(search, &plan);
        if (cost < least) best = plan, least = cost;
        if (i % (PROPOSALS / PARTS_OF_WALK) == 0) walker.now = best, walker.cost = least;
    }
    return OK;
}

const struct planner planner_flexflow = {
    .name = "flexflow", .description = "a Monte Carlo walk over strategies, on one stage",
    .source = "Z. Jia et al., FlexFlow, arXiv:1807.05358, section 6",
    .promise = "nothing: it is a heuristic",
    .solve = flexflow_solve, .exact_of = LAYERS_NONE,
};
