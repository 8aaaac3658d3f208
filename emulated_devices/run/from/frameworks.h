/* frameworks.h -- declares each framework of frameworks.def.  Files of run/from/ define them, and frameworks.c uses
 * the names for its list. */
#ifndef ORRERY_RUN_FRAMEWORKS_H
#define ORRERY_RUN_FRAMEWORKS_H

#include "emulated_devices/run/from/from.h"

#define FRAMEWORK(name) extern const struct framework framework_##name;
#include "emulated_devices/run/from/frameworks.def"
#undef FRAMEWORK

#endif
