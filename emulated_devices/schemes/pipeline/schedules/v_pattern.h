/* v_pattern.h -- schedules on a V placement: one building block, repeated for every microbatch.  v_half.c and v_min.c
 * call these functions. */
#ifndef ORRERY_PIPELINE_V_PATTERN_H
#define ORRERY_PIPELINE_V_PATTERN_H

#include "emulated_devices/schemes/pipeline/schedules/generate.h"

/* The times of a device's actions for microbatch 0, in units of a chunk's F = I = W = 1.  Microbatch m is 6m later. */
struct v_pattern { int f0, f1, i1, i0; };

/**
 * Make a schedule of that name on a V placement from the pattern of each device d of P.  Every microbatch is a copy of
 * the pattern; weight gradients fill free units.  Then actions move to earlier free units if that breaks no dependency
 * and needs no more memory than the pattern.
 * Local.  @return OK; ERR_MEMORY or an error of schedule_finish: there is no schedule.
 */
enum error_code make_v_schedule(struct schedule *, const char *name, const struct schedule_request *,
                                struct v_pattern (*pattern)(int P, int d), struct error *);

#endif
