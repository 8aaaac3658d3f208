/* simulate.h -- a cluster that trains jobs, by events of virtual time.
 *
 * Events are arrivals, ends, failures, repairs and the times that a scheduler asks for.  At each the scheduler says who
 * gets what; then jobs are put into blocks of devices, and those whose block or size has changed move their state.
 *
 *     clock rate alone     nothing stops
 *     other devices        the step that runs is thrown away; the state moves from the old block to the new one, each
 *                          byte that a device lacks once (model/collection/moves.h), and the job starts again
 *     no devices           the state goes to the memory of hosts, and comes back later; the job pays for both then
 *     a failure            the job goes back to its last save, and reads it
 *
 * Times are whole milliseconds and powers whole watts, so energy is whole millijoules, and sums are exact.  At the end
 * simulate() holds its own books: each device's states fill the time, the energy of devices is that of jobs, idle and
 * broken devices, and every job has done all of its steps.
 *
 * cli/cluster/cluster.c, claims and tests call simulate; page.c draws what comes out.
 */
#ifndef ORRERY_CLUSTER_SIMULATE_H
#define ORRERY_CLUSTER_SIMULATE_H

#include "emulated_devices/cluster/failures.h"
#include "emulated_devices/cluster/scheduler.h"

/* X(STATE, name in tables and keys) */
#define DEVICE_STATES_ALL(X)        \
    X(DEVICE_COMPUTES, "computing") \
    X(DEVICE_WAITS, "waiting")      \
    X(DEVICE_MOVES, "moving")       \
    X(DEVICE_IDLE, "idle")          \
    X(DEVICE_BROKEN, "broken")
enum device_state {
#define X(state, name) state,
    DEVICE_STATES_ALL(X)
#undef X
    DEVICE_STATES
};
extern const char *const device_state_names[DEVICE_STATES];

/* A device has been in each state so long, and has taken so much. */
struct device_books { int64_t time[DEVICE_STATES], energy[DEVICE_STATES]; };    /* ms, mJ */

/* A job on a block of devices at a clock rate. */
struct job_piece {
    int job, place, devices, clock;
    int64_t from, starts, to;           /* state moves until `starts`, then steps run */
    int64_t energy;                     /* millijoules of all its devices */
};

struct job_outcome {
    int64_t began, ended;               /* first piece, end */
    int64_t served, energy;             /* device milliseconds; millijoules */
    int64_t done, redone;               /* millionths of steps; of them those that were done again */
    uint64_t bytes;                     /* that its changes have moved */
    int changes, pauses, failures;      /* of devices; times without any, after it began */
};

struct simulation_setting {
    const struct scheduler *scheduler;  /**< Scheduler that decides. */
    struct scheduling_setting how;      /**< Settings of the scheduler. */
    int devices, node;                  /* powers of two */
    int64_t copy_rate;                  /* 10^6 bytes a second between a device and its host; 0: takes no time */
    double between;                     /* milliseconds between failures of a device; 0: nothing fails */
    int64_t repair, restart, save;      /* milliseconds: until a device is repaired; until a job that failed starts
                                         * again; between saves, 0: only changes save */
    uint64_t seed;                      /* of failures */
};

struct simulated {
    int devices;                        /**< Devices of the cluster. */
    int64_t end;                        /* of the last job */
    struct job_outcome *job;            /* [jobs] */
    struct device_books *device;        /* [devices] */
    struct job_piece *piece;            /* [pieces] in the order of their ends */
    int pieces, room;
    int failures, decisions;
    uint64_t bytes;                     /* of all moves */
    struct device_books all;            /* of all devices together */
    int64_t energy;                     /* of all jobs, and of devices without one: the same as that of `all` */
};

/**
 * Let a cluster train jobs until all are done.
 * @return OK, for simulated_free; ERR_PLAN: a job never starts; ERR_INTERNAL: the books do not close; ERR_MEMORY; an
 *         error of a price.  After an error there is nothing to free.
 */
enum error_code simulate(struct simulated *, const struct cluster_jobs *, struct pricing *,
                         const struct simulation_setting *, struct error *);
void simulated_free(struct simulated *);

#endif
