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
struct context_seen {
    const struct context_load *load;
    const struct context_plan *plan;
    const struct context_plan *const *step;     /* [load->micros, at least 1] the plans of all microbatches of the step;
                                         * NULL: not known */
};

/** Whether each sample of a step is in one microbatch.  Local.  @return OK or ERR_CHECK. */
enum error_code context_samples_are_once(const void *seen, int64_t *checked, struct error *);

extern const struct invariant zeppelin_invariants[], hdp_invariants[], flexsp_invariants[], dcp_invariants[];

#endif
