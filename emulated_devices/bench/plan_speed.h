/* plan_speed.h -- the time and memory that a plan takes of this machine.  cli/bench/plan.c calls these functions. */
#ifndef ORRERY_BENCH_PLAN_SPEED_H
#define ORRERY_BENCH_PLAN_SPEED_H

#include "emulated_devices/comm/crew.h"
#include "emulated_devices/device/cluster.h"

enum { PLAN_SPEED_PARTS = 8 };          /* along tp and along pp */

/* This says which plans are run. */
struct plan_speed { const char *model, *devices; int micro, streams; bool unfolded; struct cluster cluster; };

/* This holds what a process that ran a plan says of it. */
struct plan_speed_row {
    enum error_code code;               /**< Error of the plan; OK: none. */
    struct error err;                   /**< Message of the error. */
    char folded[40];                    /* over which axes devices stood for others */
    struct crew_outcome crew;           /* what it took */
    double seconds;                     /* of a processor */
    picoseconds step;                   /**< Virtual time of the planned step. */
    long kilobytes;                     /**< Peak of the process's memory, in KiB. */
};

/** Plan a step on so many devices, a multiple of the parts along tp and pp, in a process of its own, whose peak of
 *  memory is the plan's.  @return OK, the plan's error, or ERR_MEMORY. */
enum error_code plan_speed_measure(const struct plan_speed *, int devices, struct plan_speed_row *, struct error *);

#endif
