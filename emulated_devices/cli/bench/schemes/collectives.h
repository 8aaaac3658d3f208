/* collectives.h -- the parts of `orrery bench collectives`: its options, and the measurement of one job. */
#ifndef ORRERY_BENCH_COLLECTIVES_H
#define ORRERY_BENCH_COLLECTIVES_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/collectives/collective.h"

enum { BENCH_SIZES = 64, BENCH_MOST_DEVICES = 64, BENCH_MOST_RUNS = 101, BENCH_ALGORITHMS = 32 };

struct bench_collectives {
    enum operation operation;           /* the collective that all algorithms are measured on */
    const struct algorithm *algorithm[BENCH_ALGORITHMS];        /* those that were asked for, or all of the operation */
    int algorithms;                     /* entries of `algorithm` */
    int devices[BENCH_MOST_DEVICES], jobs;      /* ranks of each job, one after another; number of jobs */
    uint64_t bytes[BENCH_SIZES];        /* lengths of vectors */
    int sizes, runs;                    /* entries of `bytes`; repetitions of each size */
    struct cluster cluster;             /* for virtual time */
    bool quiet;                         /* no table is printed */
    const char *json;                   /* file for the results; NULL: none */
};

/**
 * One device of a job that measures every algorithm and MPI's own collective with every size.
 * asked: a struct bench_collectives.  Rank 0 prints the table and writes ->json, if given.
 * @return OK, or on every device ERR_CHECK if a result was wrong, or the error that ended it.
 */
device_fn bench_collectives_device;

#endif
