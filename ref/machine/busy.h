/* busy.h -- whether others use the machine's cores at this moment.
 *
 * Source    getloadavg(3): the mean number of runnable processes over the last minute
 * Errors    none
 *
 * cli/calibrate asks before it measures how long things take.
 */
#ifndef ORRERY_BUSY_H
#define ORRERY_BUSY_H

/** The machine's load: ORRERY_LOAD, if the environment has it (for tests), else the mean of the last minute; negative:
 *  the system does not say. */
double busy_load(void);

/** The cores of the whole machine, whose load that is, at least 1. */
int busy_cores(void);

#endif
