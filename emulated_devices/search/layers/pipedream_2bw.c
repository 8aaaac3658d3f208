/* pipedream_2bw.c -- PipeDream-2BW: even stages of copies for a pipeline that is never drained.
 *
 * All stages have equally many layers and copies, and one strategy, so depth and recomputation are all that is left to
 * choose.  Stages compute with two versions of the weights and never wait for the end of a step, so a step takes as
 * long as the longest stage needs for its microbatches.  The plan is run here by 1F1B, which drains the pipeline: its
 * time in a table is longer than the planner's own by that.  The second version of the weights is not counted, as the
 * table is of 1F1B.
 *
 * Apart from pipedream.c: stages are even, and all depths are tried.
 *
 * Source   D. Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021, arXiv:2006.09503,
 *          section 3.3.  The release (msr-fiddle/pipedream, branch pipedream_2bw) has no planner
 */
#include "emulated_devices/search/layers/layers.h"
#include "emulated_devices/search/planner.h"

static bool is_copied(const struct strategy *strategy) { return strategy->axis[CP] <= 1 && strategy->axis[TP] <= 1; }

/* Only plans whose stages are equal are of the paper's space. */
static bool is_even(const struct layer_table *table, const struct layer_plan *plan)
{
    return table->layers % plan->stages == 0;
}

static enum error_code two_versions_solve(struct layer_search *search, struct error *err)
{
    const struct layer_table *const table = search->table;
    if (table->link)
        return fail(err, ERR_PLAN, "--planner pipedream-2bw: the table is a graph; its layers must follow each other; "
                    "tensoropt and mindspore take graphs");
    for (int s = 0; s < table->strategies; s++) {
        struct layer_plan plan;
        struct layer_verdict verdict;
        if (!is_copied(&table->strategy[s]) || !layer_plan_evenly(table, table->strategy[s].devices, &plan)
            || !is_even(table, &plan)) continue;
        for (int l = 0; l < table->layers; l++) plan.strategy[l] = s;
        if (!layer_plan_judge(table, &plan, &verdict)) continue;
        search->looked++;
        if (search->memory > 0 && verdict.memory > search->memory) continue;
        const picoseconds step = verdict.longest * table->micros;
        if (search->found && step >= search->predicted) continue;
        search->found = true, search->best = plan, search->verdict = verdict, search->predicted = step;
    }
    return OK;
}

const struct planner planner_pipedream_2bw = {
    .name = "pipedream-2bw", .description = "even stages of copies, by the longest stage of a pipeline never drained",
    .source = "D. Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021, arXiv:2006.09503",
    .promise = "nothing: it is a heuristic for the time of a step",
    .solve = two_versions_solve, .exact_of = LAYERS_NONE,
};
