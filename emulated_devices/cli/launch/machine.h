/* machine.h -- what this machine can hold. */
#ifndef ORRERY_LAUNCH_MACHINE_H
#define ORRERY_LAUNCH_MACHINE_H

#include "ref/error.h"
#include <stdint.h>

/**
 * Whether so many devices can run here: their memory, processes and threads, and the files by which MPICH holds them.
 * A soft limit of open files that is too low is raised, for this process and those that it starts.
 * @return OK, or ERR_MEMORY and a line that says what is missing.
 */
enum error_code machine_check(int devices, struct error *);

/**
 * Whether there is memory for so many devices and the models in them.
 * @param model  bytes of all devices together; 0: not known.
 * @return OK, or ERR_MEMORY and a line that says what is missing.
 */
enum error_code machine_check_memory(int devices, uint64_t model, struct error *);

#endif
