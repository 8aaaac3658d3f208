/* frameworks.h -- declares each framework for the list of frameworks.c. */
#ifndef ORRERY_RUN_FRAMEWORKS_H
#define ORRERY_RUN_FRAMEWORKS_H

#include "emulated_devices/run/from/from.h"

extern const struct framework framework_megatron, framework_torchtitan, framework_deepspeed,
    framework_accelerate;

#endif
