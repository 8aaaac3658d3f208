/* collectives_table.h -- prints what bench/schemes/collectives.h measures, and writes the rows.  collectives.c asks
 * for the table.  Errors are those of the measurement. */
#ifndef ORRERY_BENCH_COLLECTIVES_TABLE_H
#define ORRERY_BENCH_COLLECTIVES_TABLE_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/bench/schemes/collectives.h"

/* This holds what a job of `orrery bench collectives` is asked for. */
struct collectives_job {
    struct bench_collectives measures;  /* what is measured */
    bool quiet;                         /* no table is printed */
    const char *json;                   /* file for the results; NULL: none */
};

/** One device of a job.  asked: a struct collectives_job.  Rank 0 prints the table and writes ->json, if given.
 *  @return as collectives_measure, or the error of the file. */
device_fn bench_collectives_device;

#endif
