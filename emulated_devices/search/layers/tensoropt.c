/* tensoropt.c -- TensorOpt: the whole frontier of time and memory on one stage, and its fastest plan that fits.
 *
 * A graph is eliminated to nothing (graph.c); layers that follow each other are a line already, and are tracked along
 * it (chain.c).  There are no stages: all devices have all layers.
 *
 * Apart from galvatron.c: memory is no index but a result, so one run answers for every memory.
 *
 * Source   Z. Cai et al., TensorOpt, arXiv:2004.10856, section 4: product, union, reduce, and eliminations
 */
#include "emulated_devices/search/layers/frontier.h"
#include "emulated_devices/search/planner.h"

static enum error_code tensoropt_solve(struct layer_search *search, struct error *err)
{
    const enum error_code e = frontier_solve(search, BY_TIME_AND_MEMORY, err);
    if (!e) layer_points_reduce(search);
    return e;
}

const struct planner planner_tensoropt = {
    .name = "tensoropt", .description = "the whole frontier of time and memory, on one stage",
    .source = "Z. Cai et al., TensorOpt, arXiv:2004.10856 (no code is public)",
    .promise = "no plan of one stage is faster by the table and fits",
    .solve = tensoropt_solve, .exact_of = LAYERS_ONE_STAGE, .frontier = true,
};
