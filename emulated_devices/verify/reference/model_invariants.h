/* model_invariants.h -- invariants of what a plan or a model adapts without a scheme: layers to the speeds of stages,
 * and the correction biases of routers to the choices of experts.
 *
 * Caller: adaptation.c of this folder, for every device of a run.
 */
#ifndef ORRERY_VERIFY_MODEL_INVARIANTS_H
#define ORRERY_VERIFY_MODEL_INVARIANTS_H

#include "emulated_devices/plan/plan.h"

/* These stand where a scheme's head stands: a name and invariants. */
extern const struct scheme placement_by_speed, router_biases;

/* The placement has been seen as a plan with speeds and its schedule. */
struct placement_seen { const struct plan *plan; const struct schedule *schedule; };

/* The biases of a layer before and after a step, and its choices, each of E experts. */
struct bias_seen { int64_t layer, E; const double *before, *after, *choices; };

#endif
