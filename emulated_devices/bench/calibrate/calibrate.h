/* calibrate.h -- this machine as a cluster file: what was timed on its devices, and the constants that fit it.
 *
 *     work      operations on the tensors of a layer, timed on all devices at once
 *     volleys   messages that every device sends to its next one at the same moment
 *
 * Both are timed in rounds, one after the other, so that a neighbour who is busy for a while spoils a round of
 * everything and not all rounds of one thing.  The least of the rounds is fitted; the median says how noisy it was.
 * With more devices than cores each has its share of a core: what is timed of work is the time of a whole core, in
 * which a device is not interrupted, multiplied by devices / cores.  Volleys are timed until the last has arrived.
 * cli/calibrate/calibrate.c calls these functions.
 */
#ifndef ORRERY_CALIBRATE_H
#define ORRERY_CALIBRATE_H

#include "emulated_devices/device/cluster.h"
#include "ref/error.h"
#include "ref/ops/ops.h"

struct comm;

enum { CALIBRATE_MOST_DEVICES = 64, CALIBRATE_MOST_ROUNDS = 99, WORK_MOST = 96, VOLLEYS_MOST = 16, CALLS_MOST = 2 };

enum work_kind { WORK_PRODUCT,          /* a matrix product */
                 WORK_ATTENTION,        /* operations, but not one product */
                 WORK_MEMORY };         /* mostly reads and writes */

struct rounds { double least, median; };        /* seconds */

struct work {
    char name[48];
    enum work_kind kind; /* which of the cluster's rates the work depends on */
    struct { char name[32]; struct op_cost cost; } call[CALLS_MOST];    /* what the clock is charged with */
    int calls;           /* entries of `call` */
    struct rounds took;                 /* all calls together */
};

struct volley {
    uint64_t bytes;                     /* of a message */
    int messages;                       /* of each device, one after the other without waiting */
    struct rounds took;                 /* until all have arrived */
};

struct calibration {
    int devices, cores, threads, rounds;        /* threads: of a device */
    enum dtype dtype;                           /* format that is calibrated */
    struct work work[WORK_MOST];                /* operations that each device times */
    int works;                                  /* entries of `work` */
    struct volley volley[VOLLEYS_MOST];         /* messages of several lengths, timed between all devices at once */
    int volleys;                        /* none of one device */
};

/* ---- fit.c ------------------------------------------------------------------------------------------------------- */

/** How far the fitted clock is from what was timed: means of |log(clock / timed)|, about the relative error. */
struct misfit { double kind[WORK_MEMORY + 1], volleys; };

/**
 * The cluster whose clock takes what was timed.
 * Products decide tiles, half_depth, the rate of operations and the start of a kernel; attention its share of that
 * rate; of the others the fastest is the rate of memory, and each has a share of it by its name.  A link has latency,
 * gap and rate by the volleys.  Names and sources are not set.
 * @param[out] cluster  of one unit, with rates for the calibration's format alone.
 * @return OK; ERR_CHECK: a kind of work is missing, or a time is not above 0.
 */
enum error_code calibration_fit(const struct calibration *, struct cluster *cluster, struct misfit *, struct error *);

/** The seconds that the clock of a cluster says for the work, or the volley. */
double work_time(const struct cluster *, enum dtype, const struct work *);
double volley_time(const struct link *, const struct volley *);

/* ---- cluster_file.c ---------------------------------------------------------------------------------------------- */

/** Name a fitted cluster, and say when and how it was measured.  @param when  such as "2026-01-31 09:30 UTC". */
void cluster_describe(struct cluster *, const struct calibration *, const char *when);

/** A cluster with one link as the document that cluster_find reads.  @return in memory for cJSON_Delete, or NULL. */
struct cJSON *cluster_document(const struct cluster *);

/** Write a cluster with one link as a file that cluster_find reads.  It is not there, or whole.
 *  @param path  "-": standard output.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code cluster_write(const char *path, const struct cluster *, struct error *);

/* ---- timed.c ----------------------------------------------------------------------------------------------------- */

/** Time this machine.  Collective over the devices of a job.
 *  @param[in,out] calibration  with its rounds; on return filled, the same on all devices.
 *  @return OK; ERR_MEMORY or ERR_COMM, on every device. */
enum error_code calibration_measure(struct comm *, struct calibration *calibration, struct error *);

#endif
