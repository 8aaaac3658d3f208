/* snapshot.h -- the state at a step's start in the host's memory: a device's own, and what only its ward had.
 *
 * Every device copies its own numbers.  What no other device has, it also sends to its keeper
 * (collection_keeper), on the next node if there is one.  So if one device is lost in the step, all of the state is
 * still there: the others have theirs as it was, whatever the step has changed, and the keeper has the rest.
 *
 *     bytes of the copy      of the boxes that the device has
 *     bytes of the message   of the boxes that only this device has: with ZeRO its shards, without copies all
 *
 * Source   Z. Wu et al., "ElasWave: an elastic-native system for scalable hybrid-parallel training", 2025,
 *          arXiv:2510.00606: snapshots of every step in neighbours' memory
 *
 * run/elastic/losing.c calls these functions, and run/survive/again.c asks for the bytes of a copy.
 */
#ifndef ORRERY_SNAPSHOT_H
#define ORRERY_SNAPSHOT_H

#include "emulated_devices/model/collection/transfer.h"

struct snapshot {
    int64_t step;                       /* steps done when it was taken; -1: there is none */
    struct carried own, ward;           /* this device's numbers; those that only its ward had */
    uint64_t copied, sent;              /* bytes of the last snapshot, counted */
};

/** Bytes of a device's copy, or of the message to its keeper: by the plan alone.  @return OK or ERR_MEMORY. */
enum error_code snapshot_bytes(const struct collection *, int device, uint64_t *copied, uint64_t *sent,
                               struct error *);

/** Bytes of a device's copy alone.  @return OK or ERR_MEMORY. */
enum error_code snapshot_copied(const struct collection *, int device, uint64_t *copied, struct error *);

/** Take a snapshot of the trainer's state, in place of the earlier one.  Collective over the trainer's devices; takes
 *  no virtual time.  @return OK, or the same error on every device; snapshot_free works after both. */
enum error_code snapshot_take(struct snapshot *, const struct collection *, struct trainer *, struct error *);

/** After a loss: give this device's own numbers, and its ward's if that is lost, as collection_has lists them where
 *  collection->losses names it.  The snapshot is empty afterwards.  @return OK or ERR_MEMORY. */
enum error_code snapshot_give(struct snapshot *, const struct collection *, const struct losses *, int device,
                              struct carried *gives, struct error *);

/** Overwrite a lost device's snapshot, so that nothing can come from it. */
void snapshot_poison(struct snapshot *, const struct collection *);
void snapshot_free(struct snapshot *);

#endif
