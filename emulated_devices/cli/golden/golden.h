/* golden.h -- the parts of `orrery golden`. */
#ifndef ORRERY_CLI_GOLDEN_H
#define ORRERY_CLI_GOLDEN_H

#include "emulated_devices/cli/cli.h"

/** `orrery golden make`: argv[2] is "make"; its own words begin at argv[3]. */
command_fn golden_make_command;

#endif
