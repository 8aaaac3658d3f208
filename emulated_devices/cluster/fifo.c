/* fifo.c -- first come, first served: a job that finds no block holds up all behind it, and keeps its devices until it
 * ends.  schedulers.c lists it.  Errors: ERR_MEMORY. */
#include "emulated_devices/cluster/scheduler.h"

static enum error_code fifo_decide(struct scheduling *scheduling, struct error *err)
{
    return scheduling_start(scheduling, scheduling->at, scheduling->count, false, err);
}

const struct scheduler scheduler_fifo = { .name = "fifo", .what = "first come, first served, until it ends",
                                          .decide = fifo_decide };
