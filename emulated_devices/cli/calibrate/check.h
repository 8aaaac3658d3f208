/* check.h -- training steps held against the virtual time of a calibrated cluster.  calibrate.c calls these
 * functions. */
#ifndef ORRERY_CALIBRATE_CHECK_H
#define ORRERY_CALIBRATE_CHECK_H

#include "emulated_devices/bench/calibrate/steps.h"
#include "emulated_devices/cli/cli.h"

/** Run training steps on some meshes, and print their virtual time beside the wall clock's.
 *  @param json  a file; NULL: none.  @param quiet  print nothing.  @return as steps_time. */
enum error_code calibrate_check(const struct steps_request *, const char *json, bool quiet, struct error *);

#endif
