/* pipedream.c -- PipeDream: stages of copies, by dynamic programming over the longest stage alone (longest.c).
 *
 * A stage's layers are whole: its devices are copies of it.  What else a step takes is not counted; so are the messages
 * between stages in the paper unless activations are compressed.
 *
 * Apart from alpa.c: no parts of layers, and the longest stage is all that counts.
 *
 * Source   D. Narayanan et al., PipeDream, SOSP 2019, section 3.1; optimizer/optimizer_graph_hierarchical.py
 */
#include "emulated_devices/search/layers/longest.h"
#include "emulated_devices/search/layers/stages.h"
#include "emulated_devices/search/planner.h"

/* Strategies of a file have no mesh, and all take part. */
static bool is_copies(const struct strategy *strategy) { return strategy->axis[CP] <= 1 && strategy->axis[TP] <= 1; }

static enum error_code copies_least(void *context, int from, int to, int size, int flight, picoseconds *time,
                                    struct error *err)
{
    return stage_least(context, from, to, size, flight, time, err);
}

static enum error_code copies_trace(void *context, int from, int to, int size, int flight, int strategy[],
                                    struct error *err)
{
    return stage_trace(context, from, to, size, flight, strategy, err);
}

static enum error_code pipedream_solve(struct layer_search *search, struct error *err)
{
    struct stage_costs costs;
    const struct stage_rule rule = { &costs, copies_least, copies_trace };
    if (search->table->link)
        return fail(err, ERR_PLAN, "--planner pipedream: the table is a graph; its layers must follow each other; "
                    "tensoropt and mindspore take graphs");
    enum error_code e = stage_costs_open(&costs, search->table, search->memory, is_copies, err);
    if (!e) e = longest_solve(search, &rule, err);
    search->looked += costs.looked, search->thinned = costs.thinned;
    stage_costs_close(&costs);
    return e;
}

const struct planner planner_pipedream = {
    .name = "pipedream", .description = "stages of copies, by the longest stage alone",
    .source = "D. Narayanan et al., PipeDream, SOSP 2019, section 3.1",
    .promise = "nothing: it is a heuristic for the time of a step",
    .solve = pipedream_solve, .exact_of = LAYERS_NONE,
};
