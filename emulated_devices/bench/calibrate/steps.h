/* steps.h -- training steps of some models on some meshes, beside their virtual time on a calibrated cluster.
 * cli/calibrate/check.c calls these functions. */
#ifndef ORRERY_CALIBRATE_STEPS_H
#define ORRERY_CALIBRATE_STEPS_H

#include "emulated_devices/bench/calibrate/calibrate.h"

/* This says which training steps are held against their virtual time. */
struct steps_request {
    const char *program;                /* argv[0] */
    const char *models;                 /* names with commas between */
    const char *cluster;                /* a file; NULL: each number of devices is calibrated first */
    const char *dtype;                  /* format of the steps */
    int devices, rounds, steps;         /* at most so many devices; runs of each mesh; steps of each */
    bool quick;                         /* few rounds of calibration */
};

/* The words of each axis, and of schemes that are not the usual. */
struct steps_mesh { int devices; const char *name, *words[9]; };

enum { STEPS_SECONDS = 2000 };

/* A model on a mesh. */
struct steps_row {
    const struct steps_mesh *mesh;
    char model[64];
    double clock, seconds[STEPS_SECONDS];       /* virtual; of each step of each run but its first */
    int steps;
    struct rounds took;
};

struct timed_steps { struct steps_row *row; int rows; };

/** Run them.  @param[out] to  .row is for free(), also after a failure.
 *  @return OK; ERR_USAGE, ERR_MEMORY; ERR_COMM: a run failed; ERR_FILE. */
enum error_code steps_time(const struct steps_request *, struct timed_steps *to, struct error *);

#endif
