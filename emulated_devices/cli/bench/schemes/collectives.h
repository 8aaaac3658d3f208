/* collectives.h -- the parts of `orrery bench collectives`: its options, and the measurement of one job. */
#ifndef ORRERY_BENCH_COLLECTIVES_H
#define ORRERY_BENCH_COLLECTIVES_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/collectives/collective.h"

enum { BENCH_SIZES = 64, BENCH_MOST_DEVICES = 64, BENCH_MOST_RUNS = 101, BENCH_ALGORITHMS = 32 };

struct bench_collectives {
    enum operation operation;
    const struct algorithm *algorithm[BENCH_ALGORITHMS];
    int algorithms;
    int devices[BENCH_MOST_DEVICES], jobs;
    uint64_t bytes[BENCH_SIZES];
    int sizes, runs;
    struct cluster cluster;
    bool quiet;
    const char *json;
};

/**
 * One device of a job that measures every algorithm and MPI's own collective with every size.
 * asked: a struct bench_collectives.  Rank 0 prints the table and writes ->json, if given.
 * @return OK, or on every device ERR_CHECK if a result was wrong, or the error that ended it.
 */
device_fn bench_collectives_device;

#endif
