/* context_invariants.h -- what schemes promise of the plans that they make, besides that attention is right.
 *
 * `orrery verify` holds every plan of its cases to them, and plans of drawn lengths (verify/cases/drawn.h).
 * They are computed from the lengths and the finished plan, without the planner's code.
 *
 * verify/reference/adaptation.c runs them in `orrery verify`; verify/cases/drawn.c runs them on drawn lengths.  A
 * broken promise is ERR_CHECK with the numbers; schemes name their list in head.invariants.
 */
#ifndef ORRERY_ATTENTION_CONTEXT_INVARIANTS_H
#define ORRERY_ATTENTION_CONTEXT_INVARIANTS_H

#include "emulated_devices/schemes/attention/planned/context_plan.h"
#include "emulated_devices/schemes/scheme.h"

/* The `seen` of an attention scheme's invariants: a finished plan, and what its planner knew. */
struct context_seen { const struct context_load *load; const struct context_plan *plan; };

extern const struct invariant zeppelin_invariants[], hdp_invariants[], flexsp_invariants[], dcp_invariants[];

#endif
