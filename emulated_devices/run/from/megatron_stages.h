/* megatron_stages.h -- the layers of each stage by Megatron-LM's arguments, and which of them are recomputed.
 * megatron.c calls these functions after the axes of the mesh. */
#ifndef ORRERY_RUN_MEGATRON_STAGES_H
#define ORRERY_RUN_MEGATRON_STAGES_H

#include "emulated_devices/run/from/from.h"

/* The mesh as it will be: with what the user typed in place of the file's. */
struct megatron_mesh { int64_t tp, pp, cp, dp, ep, devices; };

enum { MEGATRON_MOST_STAGES = 1024 };

/* chunks: stages on each device; layers: [count] of each stage, in the order of the model. */
struct megatron_stages { int64_t chunks, count, layers[MEGATRON_MOST_STAGES]; };

/** Say how many stages a device has, and the layers of each stage if stages are uneven.
 *  @param pp  devices along pp. */
void megatron_say_stages(struct from *, int64_t pp, struct megatron_stages *);

/** Say which layers are computed again in the backward pass. */
void megatron_say_recompute(struct from *, const struct megatron_stages *);

#endif
