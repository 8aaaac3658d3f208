/* frameworks.h -- declares each framework of frameworks.def: frameworks.c lists them, and the file of each framework
 * defines its own. */
#ifndef ORRERY_RUN_FRAMEWORKS_H
#define ORRERY_RUN_FRAMEWORKS_H

#include "emulated_devices/run/from/from.h"

#define FRAMEWORK(name) extern const struct framework framework_##name;
#include "emulated_devices/run/from/frameworks.def"
#undef FRAMEWORK

#endif
