/* strided_transfer.h -- bytes that lie apart go from one member of a group to another, by the way that is predicted to
 * be fastest (device/strided_way.h).
 *
 *     struct strided_transfer t;
 *     strided_open(&t, &group, peer, SENDS_STRIDED, pair, 1, &err);
 *     packed = room(strided_packed(&t));
 *     strided_start(&t, &exchange, memory, packed);
 *     ..
 *     strided_wait(&t, &err);
 *
 * Both sides name the same list of pairs, so both know which messages there are.  Packing is charged to the clock; the
 * bytes that arrive are the same on every way.  schemes/spatial/halo.c and model/collection/transfer.c call these
 * functions, and tests.
 */
#ifndef ORRERY_STRIDED_TRANSFER_H
#define ORRERY_STRIDED_TRANSFER_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/strided_way.h"

/* A device is one side of a transfer. */
enum strided_side { SENDS_STRIDED, RECEIVES_STRIDED };

/* One side of a transfer. */
struct strided_transfer {
    struct group *group;                /* whose members take part */
    int peer;                           /* the other member */
    enum strided_side side;             /* of this device */
    bool host;                          /* the memory is the host's, also on a device with memory of its own */
    const struct strided_pair *pair;    /* [pairs] outlives the transfer */
    int pairs;                          /* entries of `pair` */
    struct strided_size size;           /* of the list */
    struct strided_choice choice;       /* the way, and its messages */
    struct message *message;            /* [choice.messages] once it has started */
    char *const *memory;                /* [pairs] the addresses that this side's forms begin at */
    char *packed;                       /* the bytes side by side; NULL: this side packs nothing */
};

/** The way to a member, or from there. */
struct strided_choice strided_choice_to(const struct group *, int peer, const struct strided_pair *, int pairs);

/** Enter the messages of a transfer, with a member at this level, as sent. */
void strided_enter(struct traffic *, int level, const struct strided_pair *, int pairs, struct strided_choice);

/** Choose the way, without a message.  Local.  @return OK or ERR_MEMORY; then there is nothing to close. */
enum error_code strided_open(struct strided_transfer *, struct group *, int peer, enum strided_side,
                             const struct strided_pair *, int pairs, struct error *);

/** Bytes that this side packs, for which it needs memory besides; 0: none. */
uint64_t strided_packed(const struct strided_transfer *);

/**
 * Start all messages.
 * @param memory  [pairs] the address of each pair on this side; the list outlives the transfer, and the bytes stay
 *                as they are until strided_wait.
 * @param packed  [strided_packed] likewise.
 */
void strided_start(struct strided_transfer *, struct exchange *, char *const *memory, void *packed);

/** Wait until all messages have left, or have come and are where they belong.  Frees the list of messages.
 *  @return OK or ERR_COMM. */
enum error_code strided_wait(struct strided_transfer *, struct error *);

#endif
