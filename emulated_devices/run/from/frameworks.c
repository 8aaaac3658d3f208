/* frameworks.c -- lists the frameworks whose configurations `orrery plan --from` reads.  from.c tries them in this
 * order; `orrery list frameworks` prints them.  No function. */
#include "emulated_devices/run/from/frameworks.h"

const struct framework *const frameworks[] = {
#define FRAMEWORK(name) &framework_##name,
#include "emulated_devices/run/from/frameworks.def"
#undef FRAMEWORK
    NULL
};
