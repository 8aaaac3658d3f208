/* alone.h -- how long one device would need for the step of a plan.
 * run/session.c and run/plan.c call alone_step_time to compare a plan's step with the step of one device. */
#ifndef ORRERY_ALONE_H
#define ORRERY_ALONE_H

#include "emulated_devices/plan/plan.h"

/**
 * The virtual time of one training step of a plan's batch on one device of its cluster: the whole batch at once, in
 * memory enough for it, with nothing recomputed, quantised or kept elsewhere.  Computes no numbers: the backend
 * `count` charges each operation.
 * Local: any process may call it, also one without MPI.
 * @param plan  checked, with a cluster.
 * @param[out] kept  bytes of weights, gradients and optimizer state, which the device keeps between steps.
 * @return OK; ERR_PLAN if there is no such step: batches from a file, inputs other than text, no backward pass;
 *         ERR_MEMORY.
 */
enum error_code alone_step_time(const struct plan *plan, picoseconds *time, uint64_t *kept, struct error *);

/** The bytes that one device would keep between steps, by kind.  Local.  @return OK, ERR_PLAN or ERR_MEMORY. */
enum error_code alone_state(const struct plan *, struct arena_use *kept, struct error *);

#endif
