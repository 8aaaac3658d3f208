/* frontier.h -- one stage of all devices: a graph, or a line of layers, solved to its last list of points.
 * tensoropt.c and mindspore.c of this folder call.  The functions are local. */
#ifndef ORRERY_SEARCH_FRONTIER_H
#define ORRERY_SEARCH_FRONTIER_H

#include "emulated_devices/search/layers/chain.h"
#include "emulated_devices/search/layers/layers.h"

/** Solve by a rule, offer every plan of the last list, and make the search's points of them, in no order.
 *  @return OK; ERR_MEMORY or ERR_PLAN. */
enum error_code frontier_solve(struct layer_search *, enum chain_rule, struct error *);

/** Drop points that another one beats; the fastest is first. */
void layer_points_reduce(struct layer_search *);

#endif
