/* mindspore.c -- MindSpore's lists of costs: eliminations as TensorOpt's, but lists are kept by computing and
 * communication.
 *
 * Memory is no axis of a list: of two plans that compute and communicate alike the one that fits may be dropped, and
 * the release then finds "no available cost".  So this planner is a heuristic where memory is short; its gap is in
 * `orrery verify planners`.  At the end plans above the memory are left out, and alpha x computing + beta x
 * communication decides.  The table has times of both, where the release has bytes and beta = 50 for each; so alpha
 * and beta are 1 here.
 *
 * Source   PanGu-alpha, arXiv:2104.12369, section 3; mindspore/ccsrc/frontend/parallel/auto_parallel/costmodel.cc
 */
#include "emulated_devices/search/layers/frontier.h"
#include "emulated_devices/search/planner.h"

static enum error_code mindspore_solve(struct layer_search *search, struct error *err)
{
    const enum error_code e = frontier_solve(search, BY_COMPUTING_AND_COMMUNICATION, err);
    search->points = 0;                 /* its list is no frontier of memory */
    return e;
}

const struct planner planner_mindspore = {
    .name = "mindspore", .description = "lists of computing and communication, on one stage",
    .source = "PanGu-alpha, arXiv:2104.12369; MindSpore's auto_parallel, costmodel.cc",
    .promise = "nothing where memory is short; without a limit no plan of one stage is faster by the table",
    .solve = mindspore_solve, .exact_of = LAYERS_NONE,
};
