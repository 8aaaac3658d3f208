/* frameworks.h -- declares each framework: frameworks.c lists them, and the file of each framework defines its own. */
#ifndef ORRERY_RUN_FRAMEWORKS_H
#define ORRERY_RUN_FRAMEWORKS_H

#include "emulated_devices/run/from/from.h"

extern const struct framework framework_megatron, framework_torchtitan, framework_deepspeed,
    framework_accelerate;

#endif
