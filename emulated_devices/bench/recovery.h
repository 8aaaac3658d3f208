/* recovery.h -- what a lost device costs by three ways of recovering: groups, pace afterwards, and layers that move.
 *
 * Groups are rings along dp, tp and pp.  Who opens a group meets at its first member, which takes one connection of
 * each other; then each member has a connection to each neighbour of the ring.  A device opens its connections one
 * after another, so the busiest device decides.
 *
 *     full rebuild       all processes start again: everybody meets at device 0, and all groups are opened
 *     partial rebuild    groups that the lost device was in are opened anew by those that are left
 *     in place           the lost device's neighbours of each ring connect
 *
 * Pace: a stage of the pipeline has dp copies, and one copy of one stage is lost (with its tp devices).
 *
 *     dropped     the whole replica goes: the others take its microbatches, dp / (dp - 1) times as many
 *     shared      the other copies of that stage alone take them, in bubbles as far as these suffice: at best
 *                 (microbatches x dp / (dp - 1) + stages before that one) x its time, and no less than before
 *     moved       and layers move to the other stages, by the minimax program (schemes/pipeline/placement.h)
 *     raised      and that stage's devices compute at a higher clock rate
 *
 *     step = (microbatches - 1) x slowest stage + one microbatch through all stages      (all but "shared")
 *
 * Restoring: where the state comes from, and the steps that are done again.
 *
 *     checkpoint   each device reads its state from a drive; on the average half of the steps between two checkpoints
 *     shared       each device reads it from the host's memory (--survive); half a step
 *     neighbour    the lost device's state comes over the outermost link (--lose); half a step
 *
 * Source   Z. Wu et al., "ElasWave: an elastic-native system for scalable hybrid-parallel training", 2025,
 *          arXiv:2510.00606; "dropped" is as in TorchFT, "shared" as in ReCycle (S. Gandhi et al., SOSP 2024)
 *
 * cli/bench/recovery.c prints what these functions count.  All are pure.
 */
#ifndef ORRERY_BENCH_RECOVERY_H
#define ORRERY_BENCH_RECOVERY_H

#include "emulated_devices/device/cluster.h"
#include "ref/error.h"
#include <stdint.h>

enum { RECOVERY_AXES = 3 };             /* dp, tp, pp */

/* X(REBUILD, what a table calls it) */
#define REBUILDS(X)                              \
    X(REBUILD_FULL, "full rebuild")              \
    X(REBUILD_PARTIAL, "partial rebuild")        \
    X(REBUILD_IN_PLACE, "in place")
enum rebuild {
#define X(rebuild, name) rebuild,
    REBUILDS(X)
#undef X
    REBUILD_COUNT
};

/* X(PACE, what a table calls it) */
#define PACES(X)                                 \
    X(PACE_DROPPED, "dropped")                   \
    X(PACE_SHARED, "shared")                     \
    X(PACE_MOVED, "moved")                       \
    X(PACE_RAISED, "raised")
enum pace {
#define X(pace, name) pace,
    PACES(X)
#undef X
    PACE_COUNT
};

/* X(RESTORE, what a table calls it, how its groups are rebuilt) */
#define RESTORES(X)                                                                  \
    X(RESTORE_CHECKPOINT, "full rebuild, checkpoint", REBUILD_FULL)                  \
    X(RESTORE_SHARED, "full rebuild, shared memory (--survive)", REBUILD_FULL)       \
    X(RESTORE_PARTIAL, "partial rebuild, neighbour", REBUILD_PARTIAL)                \
    X(RESTORE_IN_PLACE, "in place, neighbour (--lose)", REBUILD_IN_PLACE)
enum restore {
#define X(restore, name, rebuild) restore,
    RESTORES(X)
#undef X
    RESTORE_COUNT
};

/** The state of a device, and how often it is saved. */
struct recovery_state {
    uint64_t bytes;                     /* of each device */
    int every;                          /* steps between two checkpoints */
};

/* This is what a way of restoring takes. */
struct restore_cost {
    picoseconds restoring;              /* until all have their state */
    double lost;                        /* steps that are done again, on the average */
};

struct rebuild_count {
    int64_t connections;                /* that are opened, each at both of its ends once */
    int64_t busiest;                    /* of the device that opens most */
};

/** Count the connections of a way.  @param size  [RECOVERY_AXES] of the mesh; the last axis varies slowest.
 *  @param lost  the rank that is lost.  @return OK or ERR_MEMORY. */
enum error_code recovery_rebuild(const int size[RECOVERY_AXES], int lost, enum rebuild, struct rebuild_count *,
                                 struct error *);

/** A pipeline of which one copy of one stage is lost. */
struct recovery_pipeline {
    int layers, stages, copies, micros; /* of the model; of each copy */
    int lost;                           /* the stage */
    int raise;                          /* percent by which its clock rate can rise */
};

/** How many times as long a step takes as before the loss.  @param[out] count  [stages] layers of each stage
 *  afterwards; may be NULL.  @return OK; ERR_PLAN: only one copy, or fewer layers than stages; ERR_MEMORY. */
enum error_code recovery_pace(const struct recovery_pipeline *, enum pace, double *ratio, int *count, struct error *);

/** How groups are rebuilt before a way of restoring. */
enum rebuild recovery_rebuild_of(enum restore);

/** How long the state takes, and which steps are lost.  @param cluster  whose drives, hosts and links are used. */
struct restore_cost recovery_restore(const struct recovery_state *, const struct cluster *cluster, enum restore);

/** Bytes on the busiest link when the last layer of a stage moves to the next stage, and each stage has so many copies,
 *  which share its state by ZeRO.
 *  @param layers       of each of the stages before.
 *  @param bytes        of a layer.
 *  @param interleaved  each layer is cut among the copies; else all layers of the stage together.
 *  @return OK or ERR_MEMORY. */
enum error_code recovery_slices(int layers, int copies, int64_t bytes, int interleaved, uint64_t *busiest,
                                uint64_t *moved, struct error *);

#endif
