/* golden.h -- the parts of `orrery golden` that golden.c and make.c share.  make.c calls these functions.
 * golden_make_command reports ERR_USAGE, ERR_PLAN and errors of files; the others report none. */
#ifndef ORRERY_CLI_GOLDEN_H
#define ORRERY_CLI_GOLDEN_H

#include "emulated_devices/cli/cli.h"
#include "ref/io/time_left.h"
#include "ref/golden/bounds.h"

/** `orrery golden make`: argv[2] is "make"; its own words begin at argv[3]. */
command_fn golden_make_command;

/** Say how far the measuring of all bounds is; for struct bounds_watch.  @param line  a struct time_left that began. */
void golden_show_twin(void *line, enum dtype, int number);

/** Print what the batch of a file cannot show, a line for each kind of mistake (coverage.h).
 *  @param run  the file's run in fp64.  @return how many lines. */
int golden_show_gaps(const struct replay *run);

#endif
