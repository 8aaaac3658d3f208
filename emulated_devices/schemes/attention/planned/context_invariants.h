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

/* The `seen` of an attention scheme's invariants: a finished plan, what its planner knew, and the planner. */
struct context_seen {
    const struct context_load *load;            /**< Lengths and devices that the planner knew. */
    const struct context_plan *plan;            /**< Finished plan. */
    const struct context_plan *const *step;     /* [load->micros, at least 1] the plans of all microbatches of the step;
                                         * NULL: not known */
    enum error_code (*planner)(struct context_plan *, const struct context_load *, struct error *);
};

/** Whether each sample of a step is in one microbatch.  Local.  @return OK or ERR_CHECK. */
enum error_code context_samples_are_once(const void *seen, int64_t *checked, struct error *);

/** Check the nodes, and then the devices of each node: no whole sample is longer than a cut one; and the busiest has
 *  little more than the mean work, or no more than if every sample were cut finest.  As struct invariant's `holds`. */
enum error_code context_longest_are_cut(const void *seen, int64_t *checked, struct error *);
enum error_code context_cuts_are_even(const void *seen, int64_t *checked, struct error *);

/** Check all microbatches of a step, given the plan of the first: no whole sample of the busiest device would end the
 *  step earlier elsewhere.  As struct invariant's `holds`. */
enum error_code context_step_is_even(const void *seen, int64_t *checked, struct error *);

extern const struct invariant zeppelin_invariants[], hdp_invariants[], flexsp_invariants[], dcp_invariants[];

#endif
