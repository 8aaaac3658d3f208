/* check.h -- training steps held against the virtual time of a calibrated cluster. */
#ifndef ORRERY_CALIBRATE_CHECK_H
#define ORRERY_CALIBRATE_CHECK_H

#include "emulated_devices/bench/calibrate/calibrate.h"
#include "emulated_devices/cli/cli.h"

/* This says which training steps are held against their virtual time. */
struct calibrate_check {
    const char *program;                /* argv[0] */
    const char *models;                 /* names with commas between */
    const char *cluster;                /* a file; NULL: each number of devices is calibrated first */
    const char *dtype, *json;           /* format of the steps; file for the results, NULL: none */
    int devices, rounds, steps;         /* at most so many devices; runs of each mesh; steps of each */
    bool quick, quiet;                  /* few rounds of calibration; JSON only */
};

/** Run training steps on some meshes, and print their virtual time beside the wall clock's.
 *  @return OK; ERR_COMM: a run failed; ERR_FILE. */
enum error_code calibrate_check(const struct calibrate_check *, struct error *);

#endif
