/* search_invariants.h -- what schedules found by search promise, besides that they can be executed.
 *
 * verify/cases/drawn.c runs the list for drawn times; generators name the list in head.invariants.  A broken promise is
 * ERR_CHECK with both spans.
 */
#ifndef ORRERY_PIPELINE_SEARCH_INVARIANTS_H
#define ORRERY_PIPELINE_SEARCH_INVARIANTS_H

#include "emulated_devices/schemes/pipeline/schedule.h"

/* The `seen` of a searched schedule's invariants: what was asked, with the times of F, I, W and messages set. */
struct schedule_seen { const struct schedule_request *request; const struct schedule *schedule; };

extern const struct invariant searched_invariants[];

#endif
