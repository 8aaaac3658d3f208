/* losing.h -- `--lose STEP:DEVICE[:MOMENT]`: a device is lost in a step, and the others finish the step without it.
 *
 * At the beginning of every step each device takes a snapshot of its state (model/collection/snapshot.h).  A device
 * that is lost overwrites its memory, and takes no further part.  What the others have done in the step counts for
 * nothing: they notice, agree, and do the step again from its beginning, on a mesh without the lost device.  Its
 * numbers come from the other devices' snapshots.
 *
 *     moment      the step has come to                            virtual time of the loss
 *     forward     the first forward action of the device          half of it
 *     backward    its first backward action                       half of it
 *     reduction   the end of the passes: gradients are reduced    then
 *     update      half of the optimizer's units                   then
 *     gather      all units stepped, new weights on their way     then
 *     save        its end; a checkpoint has been begun            then
 *
 * The emulation lets all devices do the part of the step that the moment lies in, for what they compute after the loss
 * is thrown away.
 *
 *     noticed = lost + the virtual time of the step before: so long the others have waited
 *     agreed  = 2 ceil(log2(devices left)) latencies of the farthest link: votes, and what they mean
 *
 * Virtual time of a snapshot: the copy is a job of the engine that copies to the host, and the message follows at the
 * rate of the link to the keeper; the update waits for both.
 *
 *     held = max(0, T_copy + T_message - T_passes)
 *
 * Source   Z. Wu et al., "ElasWave: an elastic-native system for scalable hybrid-parallel training", 2025,
 *          arXiv:2510.00606
 *
 * session.c calls losing_at() at the moments of each step; elastic.c makes the phases and moves the state.
 */
#ifndef ORRERY_LOSING_H
#define ORRERY_LOSING_H

#include "emulated_devices/model/collection/snapshot.h"
#include "emulated_devices/model/collection/outlined.h"
#include "emulated_devices/train/training.h"

/* X(MOMENT, word, what a report says) */
#define LOSE_MOMENTS(X)                                    \
    X(LOST_FORWARD, "forward", "in its forward pass")      \
    X(LOST_BACKWARD, "backward", "in its backward pass")   \
    X(LOST_REDUCTION, "reduction", "while gradients are reduced") \
    X(LOST_UPDATE, "update", "with half of the optimizer's steps done") \
    X(LOST_GATHER, "gather", "while new weights are gathered") \
    X(LOST_SAVE, "save", "while a checkpoint is saved")
enum lose_moment {
#define X(moment, word, says) moment,
    LOSE_MOMENTS(X)
#undef X
    LOSE_MOMENT_COUNT
};
extern const char *const lose_moment_words[LOSE_MOMENT_COUNT + 1];      /* as typed; ends with NULL */
extern const char *const lose_moment_says[LOSE_MOMENT_COUNT];

/* Devices that are lost in one step. */
struct loss {
    struct losses devices;              /* none: the mesh changes because it was asked for */
    enum lose_moment moment;            /* of the step, the same for all of them */
    picoseconds done, noticed, agreed;  /* after the phase: of the step, that is lost; as above */
    uint64_t restored;                  /* rank 0: bytes that only the lost devices had, from their keepers */
};

/* This is one device's part of a phase in which snapshots are taken. */
struct losing {
    struct loss *loss;                  /* that ends the phase; devices.count 0: none does */
    int64_t index;                      /* the phase's step in which that is */
    const struct collection *collection;        /* of the phase */
    struct snapshot snapshot;           /* of this step's beginning */
    uint64_t print;                     /* rank 0: the fingerprint of all weights then */
    picoseconds began, took;            /* this step; the step before */
    picoseconds until, foreseen;        /* when the snapshot's jobs end; how long they take */
    bool due, lost;                     /* they have not been waited for; the loss has come */
    uint64_t most_copied, most_sent;    /* bytes of this device's snapshots: the most */
    picoseconds held;                   /* by a snapshot: the most */
    int64_t taken;                      /* snapshots so far */
};

/** Do what a moment of a step asks for: take a snapshot, wait for it, or lose a device, which sets step->stops.
 *  Collective over the phase's devices.
 *  @return OK, or the same error on every device; ERR_CHECK if bytes or times are not those of the formulas. */
enum error_code losing_at(struct losing *, enum moment, struct trainer *, struct training_step *, struct error *);

/** Whether a device is lost at the end of this step, while a checkpoint is saved. */
static inline bool losing_is_due(const struct losing *losing, const struct training_step *step)
{
    return losing && losing->loss->devices.count > 0 && step->index == losing->index
        && losing->loss->moment == LOST_SAVE;
}

/** After a loss: give this device's numbers; a lost device gives none, and its memory is overwritten.  Local.
 *  @param device  of the job.  @return OK or ERR_MEMORY. */
enum error_code losing_give(struct losing *, struct trainer *, int device, struct carried *gives, struct error *);

/** Bring the most of all devices to rank 0, for the report.  Collective over the phase's devices.
 *  @return OK, or the same error on every device. */
enum error_code losing_gather(struct losing *, struct comm *, struct error *);

#endif
