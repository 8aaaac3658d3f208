/* v_pattern.h -- schedules on a V placement made from one building block, repeated for every microbatch. */
#ifndef ORRERY_PIPELINE_V_PATTERN_H
#define ORRERY_PIPELINE_V_PATTERN_H

#include "emulated_devices/schemes/pipeline/generate.h"

/* When a device does its part of microbatch 0, in units of F = I = W = 1 of a chunk.  Microbatch m comes 6m later. */
struct v_pattern { int f0, f1, i1, i0; };

/**
 * Fill in a schedule on a V placement from each device's pattern: every microbatch a copy of the pattern, weight gradients
 * in the free units, then actions drawn forward into free units wherever that neither breaks a dependency nor adds to the
 * memory that the pattern needs.
 */
enum error_code put_v_pattern(struct schedule *, const struct v_pattern *, struct error *);

#endif
