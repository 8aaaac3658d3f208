/* verify.c -- `orrery verify`. */
#include "emulated_devices/cli/cli.h"

enum error_code command_verify(int argc, char **argv, int *status, struct error *err)
{
    (void)argc, (void)argv, (void)status;
    return fail(err, ERR_USAGE, "verify: not built in yet");
}
