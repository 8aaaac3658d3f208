/* run.h -- a whole run of a weather model: steps, comparisons, and what is reported; and a plan, without numbers.
 * cli/train/weather.c and cli/train/plan.c call. */
#ifndef ORRERY_WEATHER_RUN_H
#define ORRERY_WEATHER_RUN_H

#include "emulated_devices/weather/compare.h"

/* This holds what a run is asked for. */
struct weather_asked {
    const struct weather_job *job;      /* what is trained where */
    const struct cluster *cluster;      /* of virtual time */
    int64_t steps;                      /* that it takes */
    bool checks;                        /* every step is compared with one device */
    const char *json;                   /* the file of --json; NULL: none */
    uint64_t memory;                    /* budget of a device, in bytes; 0: none */
    const char *save, *resume;          /* folders, to write after the last step and to go on from; NULL: none */
    bool plans;                         /* there are no numbers, and the report says whether the step fits */
};

/* This holds what came of one device. */
struct weather_device {
    struct traffic sent[3];             /* tiles of fields; gradients between copies; results */
    uint64_t peak[5];                   /* bytes: PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS; of all together */
    picoseconds time, computing;        /* virtual, of all steps */
    struct error wrong;                 /* a count that differs from its formula; code OK: none */
};

/** The words for a device's place: "samples 0, ensemble 1, tile 0 1". */
const char *weather_place(const struct weather_job *, int rank, char *out, size_t size);

/** Train and report.  Collective over all devices.
 *  @return OK; ERR_CHECK, if a number differs from one device, or a count from its formula; ERR_DIVERGED; errors of
 *  memory, messages and files. */
enum error_code weather_run_job(struct comm *, const struct weather_asked *, struct error *);

/** Run the steps without numbers on all devices, in this process, and report.  Local.
 *  @return OK; ERR_CHECK, if a device needs more memory than it has, or a count is not that of its formula;
 *  ERR_USAGE; ERR_MEMORY; errors of files. */
enum error_code weather_plan(const struct weather_asked *, struct error *);

#endif
