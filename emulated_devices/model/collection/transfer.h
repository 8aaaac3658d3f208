/* transfer.h -- moves the state of a job from the devices of one plan to those of another, device to device.
 *
 *     carried_take()    this device's numbers are copied out of its trainer, which can then be closed
 *     transfer_run()    what moves is sent; what stays is copied
 *     carried_put()     the numbers go into the new trainer
 *
 * In between the numbers are in the host's memory: of what a device had, and of what it will have.  run/elastic/ calls
 * these functions.
 */
#ifndef ORRERY_TRANSFER_H
#define ORRERY_TRANSFER_H

#include "emulated_devices/device/strided_way.h"
#include "emulated_devices/model/collection/moves.h"

/* One device's numbers of a collection; without any on a device that has no part in its plan. */
struct carried {
    int count;                          /* tensors, as in the collection */
    struct boxes *boxes;                /* [count] what the device has, or wants */
    char **data;                        /* [count] the boxes' elements, one box after another */
};

/** Copy this device's numbers of one tensor out of its trainer.  Local.
 *  @param[out] boxes  as collection_has gives them; for boxes_free.  @param[out] data  of these, for free().
 *  @return OK or ERR_MEMORY. */
enum error_code collection_take(const struct collection *, int tensor, int rank, struct trainer *own,
                                struct boxes *boxes, char **data, struct error *);

/** Copy this device's numbers of all tensors out of its trainer.  Local.
 *  @param own      the trainer of this device; NULL: it has no part in the plan.
 *  @return OK or ERR_MEMORY; carried_free works after both. */
enum error_code carried_take(struct carried *, const struct collection *, int rank, struct trainer *own,
                             struct error *);

/* Devices have sent this in a transfer. */
struct transferred {
    int messages;                       /* all of them */
    int pairs[STRIDED_WAYS];            /* of devices, of which one sends to the other, by the way */
};

/**
 * Send what moves, and copy what stays.  The boxes of a pair of devices go together, by the way that is predicted to be
 * fastest: packed in one message, packed in segments, or each piece as it lies (comm/strided_transfer.h).
 * Collective over all devices of the group, which are those of the comm and of both plans.
 * @param old          this device's numbers in the plan before.
 * @param[out] fresh   this device's numbers in the plan `to`; carried_free works in any case.
 * @param[out] did     what all devices have sent, on each of them.
 * @return OK, or the same error on every device: ERR_MEMORY, ERR_COMM, or ERR_CHECK: a device has sent or received
 *         other bytes than the moves say, or other messages than their ways say.
 */
enum error_code transfer_run(struct group *everyone, const struct moves *, const struct collection *from,
                             const struct collection *to, const struct carried *old, struct carried *fresh,
                             struct transferred *did, struct error *);

/** Put the numbers into this device's trainer of the new plan.  Local.  @return OK or ERR_MEMORY. */
enum error_code carried_put(const struct carried *, const struct collection *, struct trainer *own, struct error *);

void carried_free(struct carried *);

#endif
