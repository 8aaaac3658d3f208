/* machine.h -- checks that this machine has room for a job.  launch.c, and
 * files of run/ call these functions. */
#ifndef ORRERY_LAUNCH_MACHINE_H
#define ORRERY_LAUNCH_MACHINE_H

#include "ref/error.h"
#include <stdint.h>

/**
 * Check that a number of devices can run here: memory, processes and threads, and MPICH's open files.
 * A soft limit of open files that is too low is raised, for this process and those that it starts.
 * @return OK, or ERR_MEMORY naming what is missing.
 */
enum error_code machine_check(int devices, struct error *);

/**
 * Check that there is memory for a number of devices and their models.
 * @param model  bytes of all devices together; 0: not known.
 * @return OK, or ERR_MEMORY naming what is missing.
 */
enum error_code machine_check_memory(int devices, uint64_t model, struct error *);

/** Bytes of memory that this process may still take, with its control groups' limits.
 *  @return UINT64_MAX: nobody tells. */
uint64_t machine_free_memory(void);

#endif
