/* plan_memory.h -- what a plan takes of every device's memory, known before there are devices.
 *
 * The formulas are those that counted peaks are held to (trainer_peak), asked of an outline of each device: a plan for
 * which a budget, or the machine, is too small can be refused before anything has been started.
 */
#ifndef ORRERY_PLAN_MEMORY_H
#define ORRERY_PLAN_MEMORY_H

#include "emulated_devices/plan/plan.h"

struct plan_memory {
    struct arena_use peak;              /* bytes: of each tag, exactly, but for BUFFERS, of which it has none; the
                                         * total: at least */
    uint64_t offloaded;                 /* bytes on the slow tier */
};

/**
 * Of one device.  Local; no message is sent, and no memory made for the model.
 * @param plan   has passed plan_check.
 * @param steps  of the optimizer, that it trains from the first one; 0: it only keeps what it has.
 * @return OK or ERR_MEMORY.
 */
enum error_code plan_memory(const struct plan *plan, int rank, int64_t steps, struct plan_memory *, struct error *);

/* Of all devices together, and of the one that takes most. */
struct plan_memories { int most; struct plan_memory of_most; uint64_t device_bytes, offloaded; };
enum error_code plan_memory_of_all(const struct plan *, int64_t steps, struct plan_memories *, struct error *);

/**
 * Whether every device's memory can hold what it takes at least.  Local.
 * @param budget  bytes of a device; 0: no limit.
 * @param known   what plan_memory_of_all has found.
 * @return OK; ERR_PLAN saying which device needs how much for what, and which flags would do; ERR_MEMORY.
 */
enum error_code plan_check_budget(const struct plan *, uint64_t budget, int64_t steps,
                                  const struct plan_memories *known, struct error *);

#endif
