/* snapshot_memory.h -- snapshots of all devices in memory that outlives their processes, for `--survive`.
 *
 * The process that starts the devices makes the memory before they start, and every device maps it.  The memory has no
 * name: it is there until the last process that has it ends, so a killed launcher leaves nothing behind.
 *
 *     front       who is meant, kills so far, and the step from which the devices begin again
 *     slots       [devices] where a device's two halves are, and what is in each
 *     losses      [steps of the run] of all steps that have ended
 *     halves      [devices][2] the state of a device (model/collection/collection.h), one tensor after another
 *
 * A device writes its state at the beginning of a step into the half that has the older one.  The half counts when its
 * step is stored, after all of its bytes and their checksum.  No device begins a step before all have written.  So
 * wherever processes are killed, there is one step of which every device has a half: that step, or the one before.
 *
 * again.c is the launcher's part, surviving.c a device's.  Functions are local.
 */
#ifndef ORRERY_SNAPSHOT_MEMORY_H
#define ORRERY_SNAPSHOT_MEMORY_H

#include "ref/error.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { KILLS_MOST = 64, KILL_CAUSE = 240, HALVES = 2 };

/* One kill that the run has survived, or tries to.  Times are those of measure_now(); 0: not yet. */
struct survived_kill {
    char cause[KILL_CAUSE];             /* "device 3 (dp=3), process 4711, died: Killed" */
    int64_t from;                       /* steps done in the snapshots; -1: none were complete, the run began anew */
    double died, ended;                 /* the process; all processes of the job */
    double began, stepped;              /* the new devices had their state; their first step ended */
    double processor;                   /* seconds of processors, of the new devices until then */
};

struct snapshot_front {
    uint64_t token;                     /* tells another machine's memory from this one */
    uint64_t bytes;                     /* of all of the memory */
    int32_t devices, kills, most;       /* kills so far; how many may be survived */
    int64_t first, steps;               /* steps done before the run; steps of the run */
    int64_t from;                       /* steps done in the snapshots that devices begin with; -1: as any run does */
    struct survived_kill kill[KILLS_MOST]; /**< Kills that the run has survived, [kills]. */
    int32_t ended, status;              /* the launcher's: the run had ended before the last kill; its exit status */
};

struct snapshot_slot {
    uint64_t at, bytes;                 /* of the first half, from the beginning of the memory; of one half */
    _Atomic int64_t step[HALVES];       /* steps done in it; -1: the half does not count */
    uint64_t sum[HALVES];               /* hash of its bytes */
};

struct snapshot_memory {
    struct snapshot_front *front;       /* NULL: not mapped */
    struct snapshot_slot *slot;         /* [devices] */
    double *loss;                       /* [steps] */
    int file;                           /* of the process that has made it; -1 */
};

/** The bytes that the memory of such devices takes.  @param bytes  [devices] of each device's state. */
uint64_t snapshot_memory_need(const uint64_t *bytes, int devices, int64_t steps);

/** Make the memory, and tell its place to all processes that this one starts.
 *  @param most  kills that may be survived, up to KILLS_MOST.
 *  @return OK; ERR_MEMORY: there is not so much; ERR_USAGE: this system has no memory that vanishes with its last
 *          process.  snapshot_memory_close works after both. */
enum error_code snapshot_memory_make(struct snapshot_memory *, const uint64_t *bytes, int devices, int64_t first,
                                     int64_t steps, int most, struct error *);

/** Map the memory that the launcher has told.  @return OK, or ERR_COMM: this process cannot reach it. */
enum error_code snapshot_memory_join(struct snapshot_memory *, int devices, struct error *);
void snapshot_memory_close(struct snapshot_memory *);

/** The half into which a device writes its state after so many steps; from now on the half does not count.
 *  @return NULL: another half has this step. */
char *snapshot_memory_begin(struct snapshot_memory *, int device, int64_t step);

/** All of its bytes are written: from now on it counts. */
void snapshot_memory_commit(struct snapshot_memory *, int device, int64_t step);

/** A device's state after so many steps.  @return NULL: no half has it. */
const char *snapshot_memory_find(const struct snapshot_memory *, int device, int64_t step);

/** Let the halves of this step count, and no others: the steps after it are done again. */
void snapshot_memory_keep(struct snapshot_memory *, int64_t step);

/** The latest step of which every device has its state, with the checksum that it was written with.
 *  @return steps done; -1: there is none. */
int64_t snapshot_memory_latest(const struct snapshot_memory *);

#endif
