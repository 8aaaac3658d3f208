/* carrier.h -- what carries messages from device to device; private to this folder.
 *
 * Two carriers fill this table: MPI, between processes (transport.c), and a crew of devices in one process (crew.c).
 * All else in comm, what is counted and charged to the clock, is the same for both.  comm.c, exchange.c and group.c
 * call a carrier's entries.
 */
#ifndef ORRERY_CARRIER_H
#define ORRERY_CARRIER_H

#include "emulated_devices/comm/comm.h"

/* A delivery is a message that is complete. */
struct delivery {
    struct exchange exchange;           /* the exchange of which the message is a part */
    struct passage passage;             /* as given to start, with what the other side said: stamp and serial, or
                                         * ready */
    void *data;                         /* as given to start */
    int peer;                           /* rank in the group */
    bool sending;                       /* this device sent the message; else it received it */
};

/* A device does this with a message.  LOOKS: it receives what may stay with its sender until it has been read. */
enum side { SENDS, RECEIVES, LOOKS };

struct carrier {
    /* Start a message.  @return its slot, or -1 if there is no memory for one. */
    int (*start)(struct exchange *, int peer, void *data, uint64_t bytes, const struct passage *, enum side);
    /* Wait until the slot's message is complete, then free the slot. */
    enum error_code (*wait)(struct comm *, int slot, struct delivery *, struct error *); /**< Waits for a message. */
    /* Where the bytes of a message are that this device LOOKS at, as soon as they are there; until `wait`.  Not the
     * place where they are to be received: of a body that stays.  NULL: bodies never stay. */
    const void *(*look)(struct comm *, int slot); /**< Bytes of a message that stays in place. */
    /* messages_meet; NULL: each is waited for by itself. */
    void (*meet)(struct comm *, const struct message *, int number, bool sent); /**< Waits for a list of messages. */
    /* End the whole job from one device.  Does not return. */
    void (*abort)(struct comm *, int exit_status);                              /**< Ends the whole job. */
    void (*close)(struct comm *); /**< Closes the connection of this device. */
    /* group_agree; NULL: by messages. */
    enum error_code (*agree)(struct group *, enum error_code local, struct error *); /**< Agrees about errors. */
    /* folds says what folding does to a group; NULL: nothing.  uneven hears why, if a group sends what differs in a
     * class. */
    enum group_folds (*folds)(const struct comm *, const int *member, int size);     /**< Effect of folding. */
    void (*uneven)(const struct group *, const char *why); /**< Told why a group is uneven. */
    /* Whether the run means nothing any more, so that nothing has to be sent; NULL: never. */
    bool (*idle)(const struct comm *);                     /**< Whether messages may be left out. */
    /* Into how many parts stages are folded; NULL: into none. */
    int (*parts)(const struct comm *);                     /**< Parts that stages are folded into. */
};

/* ---- what can be wrong with a message: carrier.c ---------------------------------------------------------------- */

/** Fail with a text that begins with the operation and its group. */
enum error_code message_wrong(const struct exchange *, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum error_code message_wrong_length(const struct exchange *, int peer, uint64_t expected, uint64_t sent,
                                     struct error *);
enum error_code message_wrong_call(const struct exchange *, int peer, struct error *);

#endif
