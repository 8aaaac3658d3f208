/* plan_memory.h -- the memory that a plan needs on every device, computed before any device starts.
 *
 * The formulas are those with which counted peaks are compared (trainer_peak), evaluated for an outline of each device.
 * So a plan that exceeds a budget, or the machine, is refused before anything starts.  Files of bench/, run/,
 * search/, train/ and other rooms call these functions.
 */
#ifndef ORRERY_PLAN_MEMORY_H
#define ORRERY_PLAN_MEMORY_H

#include "emulated_devices/plan/plan.h"

struct plan_memory {
    struct arena_use peak;              /* bytes: exact for each tag except BUFFERS, which is 0; the total is a lower
                                         * bound */
    uint64_t offloaded;                 /* bytes on the slow tier */
};

/**
 * The memory of one device.  Local; sends no message and allocates no memory for the model.
 * @param plan   has passed plan_check.
 * @param steps  optimizer steps from the start of training; 0: only what is kept between steps.
 * @return OK or ERR_MEMORY.
 */
enum error_code plan_memory(const struct plan *plan, int rank, int64_t steps, struct plan_memory *, struct error *);

/* Totals over all devices, and the device that needs most. */
struct plan_memories { int most; struct plan_memory of_most; uint64_t device_bytes, offloaded; };
enum error_code plan_memory_of_all(const struct plan *, int64_t steps, struct plan_memories *, struct error *);

/**
 * Check that the budget covers the lower bound of every device.  Local.
 * @param budget  bytes of a device; 0: no limit.
 * @param known   the result of plan_memory_of_all.
 * @return OK; ERR_PLAN saying which device needs how much for what, and which flags would help; ERR_MEMORY.
 */
enum error_code plan_check_budget(const struct plan *, uint64_t budget, int64_t steps,
                                  const struct plan_memories *known, struct error *);

#endif
