/* busy.c -- asks the system for the load of the machine.  cli/calibrate calls busy_load; busy.h states the source.  No
 * errors: a load that the system does not say is negative. */
#define _DEFAULT_SOURCE                 /* getloadavg */
#include "ref/machine/busy.h"
#include <stdlib.h>
#include <unistd.h>

double busy_load(void)
{
    double load;
    const char *given = getenv("ORRERY_LOAD");
    if (given != NULL) return strtod(given, NULL);
    return getloadavg(&load, 1) == 1 ? load : -1;
}

int busy_cores(void)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}
