/* collectives.h -- measures every algorithm of a collective beside MPI's own, in turn, with every size.
 * cli/bench/schemes/collectives_table.c calls these functions. */
#ifndef ORRERY_BENCH_COLLECTIVES_H
#define ORRERY_BENCH_COLLECTIVES_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/comm/peer.h"
#include "emulated_devices/verify/cases/exact.h"

enum { BENCH_SIZES = 64, BENCH_MOST_DEVICES = 64, BENCH_MOST_RUNS = 101, BENCH_ALGORITHMS = 32 };

struct bench_collectives {
    enum operation operation;           /* the collective that all algorithms are measured on */
    const struct algorithm *algorithm[BENCH_ALGORITHMS];        /* those that were asked for, or all of the operation */
    int algorithms;                     /* entries of `algorithm` */
    int devices[BENCH_MOST_DEVICES], jobs;      /* ranks of each job, one after another; number of jobs */
    uint64_t bytes[BENCH_SIZES];        /* lengths of vectors */
    int sizes, runs;                    /* entries of `bytes`; repetitions of each size */
    struct cluster cluster;             /* for virtual time */
};

/* One row of the comparison: one of our algorithms, a way to call MPI's, or a limit: all devices at once copy, each in
 * memory of its own, as many bytes as have to reach a device, in blocks as long as those of a ring.  WAY_LIMIT: call
 * after call.  Where devices share a core, one that has it would find in a cache what it copied just before, which in a
 * collective has left it: the others' vectors have come by.  So it copies in several vectors in turn.  WAY_IN_STEP: all
 * wait for each other after each call. */
enum { WAY_LIMIT = PEER_WAYS, WAY_IN_STEP, WAYS_ALL };
struct collectives_lane {
    const struct algorithm *algorithm;  /* NULL: MPI's, or the limit */
    int way;                            /* enum peer_way, WAY_LIMIT or WAY_IN_STEP */
    int64_t repeat;                     /* calls in a row that are timed together */
    double seconds[BENCH_MOST_RUNS];    /* of one call, the slowest device's */
    double busy[BENCH_MOST_RUNS];       /* of processors, of all devices */
    double median, least, processors;   /* of those; processors: the median */
    double counted[4];                  /* largest over devices: messages, bytes, virtual picoseconds, wrong elements */
};

enum { LANE_MESSAGES, LANE_BYTES, LANE_VIRTUAL, LANE_WRONG, LANE_COUNTED };

struct collectives_bench {
    const struct bench_collectives *asked; /**< Settings of the user. */
    const struct collectives_listener *listener; /**< Receiver of the results. */
    struct comm *world;                          /**< All devices. */
    struct exact_call call;                      /**< Call of the collective operation. */
    struct collectives_lane lane[BENCH_ALGORITHMS + WAYS_ALL];          /* the first in the order of `way` */
    int lanes;                                                          /**< Entries of `lane`. */
    bool limited;                       /* there are lanes for the limits */
    int turns, turn;                    /* vectors behind `in` and behind `out`; the one that WAY_LIMIT copies next */
    bool speaks, wrong;                 /* rank 0, whose listener is called; an element of a result was wrong */
};

/* Who is told of results, on rank 0. */
struct collectives_listener {
    void *context;                      /* first argument of both functions */
    void (*begins)(void *context, const struct collectives_bench *);    /* nothing is measured yet */
    void (*measured)(void *context, const struct collectives_bench *);  /* all lanes, with one size */
};

/** The name of an algorithm, of MPI's own, or of a limit. */
const char *collectives_lane_name(const struct collectives_lane *);

/** The part of the vector that each link must carry, as in nccl-tests. */
double collectives_bus_factor(enum operation, int P);

/** Bytes of the vector, of all blocks of an all-to-all. */
uint64_t collectives_bytes(const struct collectives_bench *);

/**
 * Measure every algorithm and MPI's own collective with every size.  Collective over all devices.
 * @return OK, or on every device ERR_CHECK if a result was wrong, or the error that ended it.
 */
enum error_code collectives_measure(struct comm *world, const struct bench_collectives *,
                                    const struct collectives_listener *, struct error *);

#endif
