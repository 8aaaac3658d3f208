/* arrange.h -- how the devices of an axis can be arranged inside: the splits of cp, and the shards of a data scheme.
 *
 * plan_space.c asks for the values of BY_SPLIT and BY_SHARDS.  The functions are pure and report no errors.
 */
#ifndef ORRERY_SEARCH_ARRANGE_H
#define ORRERY_SEARCH_ARRANGE_H

#include "emulated_devices/plan/plan.h"
#include "emulated_devices/search/plan_space.h"

/**
 * The nth split of cp that the space's lists allow, from 0: heads, from the most down, windows, placement.  Windows of
 * one device, which are a ring as any other, and placements of a plan with one ring or none are left out.
 * @param[in,out] split  the plan's; set if there is such a one, and if the space lets the scheme's split be chosen.
 * @return how many splits there are up to and with the nth; 1 where none is chosen.
 */
int arrange_split(const struct plan_space *, const struct plan *, int n, struct context_split *split);

/** As arrange_split, the shards W,G,O of the plan's copies: each number divides the next, the last the copies. */
int arrange_shards(const struct plan_space *, const struct plan *, int n, int shards[3]);

#endif
