/* planning.h -- what planners of attention have taken in this process.
 *
 * plan/context.c adds each plan that a planner makes; cli/bench/lengths.c reads the sum before and after a step that is
 * planned without numbers.  A shared plan takes nothing.
 */
#ifndef ORRERY_PLAN_PLANNING_H
#define ORRERY_PLAN_PLANNING_H

struct planning {
    double seconds;                     /* of a processor */
    int plans;                          /* plans of a microbatch that were made */
};

/** The planning of this process so far.  Local. */
struct planning planning_so_far(void);

#endif
