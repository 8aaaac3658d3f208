/* v_pattern.h -- schedules on a V placement made from one building block, repeated for every microbatch. */
#ifndef ORRERY_PIPELINE_V_PATTERN_H
#define ORRERY_PIPELINE_V_PATTERN_H

#include "emulated_devices/schemes/pipeline/generate.h"

/* When a device does its part of microbatch 0, in units of F = I = W = 1 of a chunk.  Microbatch m comes 6m later. */
struct v_pattern { int f0, f1, i1, i0; };

/**
 * Make a schedule of that name on a V placement from the pattern of each device d of P: every microbatch a copy of it,
 * weight gradients in the free units, then actions drawn forward into free units wherever that neither breaks a
 * dependency nor adds to the memory that the pattern needs.
 * Local.  @return OK; after ERR_MEMORY and what schedule_finish finds there is no schedule.
 */
enum error_code make_v_schedule(struct schedule *, const char *name, const struct schedule_request *,
                                struct v_pattern (*pattern)(int P, int d), struct error *);

#endif
