/* machine.h -- what this machine can hold; private to launch.c. */
#ifndef ORRERY_LAUNCH_MACHINE_H
#define ORRERY_LAUNCH_MACHINE_H

#include "ref/error.h"

/**
 * Whether so many devices can run here: their memory, processes and threads, and the files by which MPICH holds them.  A soft limit
 * of open files that is too low is raised, for this process and those that it starts.
 * @return OK, or ERR_MEMORY and a line that says what is missing.
 */
enum error_code machine_check(int devices, struct error *);

#endif
