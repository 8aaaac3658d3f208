/* megatron_keys.h -- the keys of Megatron-LM, shared by megatron.c, megatron_yaml.c and megatron_keys.c. */
#ifndef ORRERY_RUN_MEGATRON_KEYS_H
#define ORRERY_RUN_MEGATRON_KEYS_H

#include "emulated_devices/run/from/from.h"

extern const struct framework_key megatron_keys[];
extern const struct framework_group megatron_groups[];

#define MEGATRON_RELEASE "core_v0.16.1 (55ac7082517c)"

/** Say in our words what the arguments mean.  Called by from.c. */
void megatron_translate(struct from *);

#endif
