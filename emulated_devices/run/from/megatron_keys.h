/* megatron_keys.h -- the keys of Megatron-LM, shared by megatron.c and megatron_keys.c. */
#ifndef ORRERY_RUN_MEGATRON_KEYS_H
#define ORRERY_RUN_MEGATRON_KEYS_H

#include "emulated_devices/run/from/from.h"

extern const struct framework_key megatron_keys[];
extern const struct framework_group megatron_groups[];

#endif
