/* holmes.c -- Holmes: pipelines over unequal devices and networks.
 *
 * Stages come in the order of the machine, so each has devices of one type, and the pipeline alone crosses the slow
 * link between types: copies, and parts of layers, stay among devices of one type.  All layers have one strategy.
 * Stages get layers by their measured speed (holmes_split).  The release has the user give the cut; the formula with
 * alpha = 1.05 is the paper's, as it is remembered.
 *
 * Apart from pipette.c: layers adapt to devices, and not devices to the pipeline.
 *
 * Source   F. Yang et al., Holmes, ICPP 2024; CodexDive/Holmes, megatron/training/hetero_context.py
 */
#include "emulated_devices/search/layers/holmes.h"
#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/planner.h"

static const double ALPHA = 1.05;

static int type_stages(int stages, const int speed[], int of)
{
    int n = 0;
    for (int s = 0; s < stages; s++) n += speed[s] == of;
    return n;
}

int holmes_split(int layers, int stages, const int speed[], double alpha, int first[])
{
    int all = 0, slowest = speed[0], left = layers, good = 1;
    int count[STAGES_MOST];
    for (int s = 0; s < stages; s++) all += speed[s], slowest = speed[s] < slowest ? speed[s] : slowest;
    for (int s = 0; s < stages; s++) {
        /* Layers of all stages of this type. */
        const int alike = type_stages(stages, speed, speed[s]);
        count[s] = (int)(alpha * speed[s] * alike / all * layers) / alike;
        if (speed[s] != slowest) left -= count[s];
    }
    const int slow = type_stages(stages, speed, slowest);
    for (int s = 0, given = 0; s < stages; s++)
        if (speed[s] == slowest) count[s] = left / slow + (given++ >= slow - left % slow);
    first[0] = 0;
    for (int s = 0; s < stages; s++) good = good && count[s] > 0, first[s + 1] = first[s] + count[s];
    return good && left > 0;
}

/* The speed of each stage of n devices; 0: a stage has devices of two types. */
static int stage_speeds(const struct layer_table *table, int n, int speed[])
{
    for (int d = 0; d < table->devices; d++) {
        const int own = table->percent ? table->percent[d] : 100;
        if (d % n == 0) speed[d / n] = own;
        else if (speed[d / n] != own) return 0;
    }
    return 1;
}

static enum error_code holmes_solve(struct layer_search *search, struct error *err)
{
    const struct layer_table *const table = search->table;
    int speed[STAGES_MOST], tiled = 0;
    for (int s = 0; s < table->strategies; s++) {
        struct layer_plan plan;
        const int n = table->strategy[s].devices;
        if (!layer_plan_evenly(table, n, &plan) || !stage_speeds(table, n, speed)) continue;
        tiled = 1;
        if (!holmes_split(table->layers, plan.stages, speed, ALPHA, plan.first)) continue;
        for (int l = 0; l < table->layers; l++) plan.strategy[l] = s;
        layer_search_offer(search, &plan);
    }
    if (tiled) return OK;
    return fail(err, ERR_PLAN, "--planner holmes: no stages of equally many devices have devices of one type each; "
                "alpa takes stages of different sizes");
}

const struct planner planner_holmes = {
    .name = "holmes", .description = "one strategy, stages on devices of one type, layers by speed",
    .source = "F. Yang et al., Holmes, ICPP 2024",
    .promise = "nothing: it is a heuristic",
    .solve = holmes_solve, .exact_of = LAYERS_NONE,
};
