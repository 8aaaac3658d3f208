/* plan.h -- what a plan says of a step, as numbers without a report.  cli/train/train.c calls plan_numbers_of for
 * bench/claims, which compares the numbers with published ones. */
#ifndef ORRERY_RUN_PLAN_H
#define ORRERY_RUN_PLAN_H

#include "emulated_devices/run/report/report_speed.h"
#include "emulated_devices/train/memory_of/memory_of.h"

/* The numbers of a planned step. */
struct plan_numbers {
    struct virtual_speed speed;         /* seconds, tokens, operations; replayed if the cluster needs a replay */
    uint64_t peak;                      /* bytes of the device that needs most */
    int devices, ran;                   /* of the mesh; those that ran, the others are folded */
    struct memory_of memory;            /* with --memory-of: of the device that needs most then; else zeros */
    uint64_t budget;                    /* bytes that a device has: --memory, or its cluster's; 0: any number */
    uint64_t sent;                      /* bytes that the device sends that sends most */
    uint64_t messages;                  /* likewise messages */
    picoseconds computing;              /* of the step, in which a device computes: the mean of all devices */
    double goodput;                     /* with --mtbf: share of time that makes progress; else 0 */
    double useful, alone;               /* with --pack: share of tokens that are of samples; the same with a sample in
                                         * each sequence; else 1 */
};

/** Run a step dry as `orrery plan` does, and say nothing.  Local.
 *  @return OK, also if a device needs more memory than it has; or the error of the dry run. */
enum error_code plan_numbers_of(const struct train_options *, struct plan_numbers *, struct error *);

#endif
