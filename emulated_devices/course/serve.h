/* serve.h -- runs the devices of one run of a student's code, each with its worker.  Private to this folder.  trial.c
 * calls it in the new process of each run.  No function returns an error code. */
#ifndef ORRERY_COURSE_SERVE_H
#define ORRERY_COURSE_SERVE_H

#include "emulated_devices/course/trial.h"

/** Be the process that has the devices of a run, and start its workers.  Called in a new child; ends it.  What happened
 *  is in the run, which is in shared memory; with `ended` still RUN_UNKNOWN the devices wait for each other. */
void serve_trial(struct trial *) __attribute__((noreturn));

#endif
