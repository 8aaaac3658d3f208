/* letters.h -- which letter of a near device belongs to which message (near.h), as MPI does it for others.
 *
 * Letters from one device under one tag belong to its messages in the order in which these were started.  A message,
 * and the answer to one that waits for its receiver, are told apart.
 *
 * transport.c, slots.c and connect.c call these functions.  Without memory for a letter that nobody expects yet,
 * letters_look ends the job.  The only failure is missing memory, for which letters_make_room returns false.
 */
#ifndef ORRERY_LETTERS_H
#define ORRERY_LETTERS_H

#include "emulated_devices/comm/near.h"

struct comm;
struct slot;

/* A half of a message: the message itself, or its answer. */
struct half { int slot; bool answer; };

struct letters {
    struct half *expected;              /* [room] not here yet, oldest first */
    struct half *waiting;               /* [room] not written yet: the rings had no room; oldest first */
    int expecteds, waitings, room;      /* entries of these two, and for how many each has memory */
    struct stray *first, **last;        /* letters that nobody has expected so far, oldest first */
};

/** Memory for the messages of so many slots.  @return false: there is none. */
bool letters_make_room(struct letters *, int slots);
void letters_close(struct letters *);

/** Send a half of a slot's message: now, or as soon as there is room. */
void letters_send(struct comm *, struct half);

/** Take a half that comes for a slot's message, if it is here already; else as soon as it is. */
void letters_expect(struct comm *, struct half);

/** Take all letters that are here, and write those for which there is room now. */
void letters_look(struct comm *);

/** The body of a slot's message has been read: tell its sender, once. */
void letters_return(struct comm *, struct slot *);

/** A slot's message has failed: neither send nor expect any of it. */
void letters_forget(struct comm *, int slot);

#endif
