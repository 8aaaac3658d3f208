/* transport.h -- the part of comm that calls MPI; private to this folder.
 *
 * A message is a head and, if it is large, a body.  The head is a separate MPI message: the length, the sender's
 * virtual time, which exchange it belongs to, and the payload itself if that is small (one copy on each side).  A large
 * payload follows as the body, straight from the sender's buffer to the receiver's, cut into pieces that MPI's int can
 * count.  Heads and bodies are sent on two communicators with the same tag: MPI keeps the order of each, so the nth
 * body between a pair under a tag belongs to the nth large head, even if lengths are wrong.
 *
 *   sender    MPI_Isend(head) [ MPI_Isend(piece) ... ]
 *   receiver  MPI_Irecv(head) [ MPI_Irecv(piece) ... ]    both posted at once, since it knows the length it wants
 *
 * An MPI that knows the device's memory (a CUDA-aware one) gets its addresses, if that is asked for: then every payload
 * is a body, because a head is the host's.
 *
 * Between devices of one machine nothing goes through MPI: the head is a letter in the receiver's inbox, and the
 * receiver copies the body out of the sender's memory (near.h, letters.h).
 *
 * If a message of the described cluster waits for its receiver (rendezvous), it is answered: as soon as its receive is
 * posted, the virtual time of posting is sent to the sender, on a third communicator.
 *
 *   sender    MPI_Irecv(answer)  then as above
 *   receiver  MPI_Isend(answer)  then as above
 *
 * When the head announces another length than was expected, the receiver takes in or cancels what was posted, so that
 * messages that follow are still paired correctly, and reports both lengths.
 *
 * Used of MPI (apart from peer.c, which is for comparison only): Get_library_version, Init, Comm_idup, Comm_rank,
 * Comm_size, Isend, Issend, Irecv, Test, Iprobe, Get_count, Cancel, Request_free, Iallreduce, Abort, Finalize; Ibcast,
 * Ibarrier, Iallgather and Ialltoall for shared memory; Improbe and Imrecv for what is left over at the end.  comm.c
 * and connect.c open and close; exchange.c reaches the rest as a carrier (carrier.h).
 */
#ifndef ORRERY_TRANSPORT_H
#define ORRERY_TRANSPORT_H

#include "emulated_devices/comm/bell.h"
#include "emulated_devices/comm/carrier.h"
#include "emulated_devices/comm/letters.h"
#include "emulated_devices/comm/progress.h"

/* A tag: is it named (1 bit), context (10), number (17); 2^28 tags are what MPICH offers. */
enum { TAG_NUMBER_BITS = 17, TAG_CONTEXT_BITS = 10 };

struct head {
    uint64_t bytes;                     /* of the payload */
    int64_t stamp;                      /* virtual time at which its last byte can arrive */
    int64_t slowed;                     /* how much longer it was on the sender's port, because it shared that */
    int64_t carried;                    /* how long it was on the sender's port and on the way */
    uint32_t context, number;           /* in full; the tag has their low bits */
    uint64_t call;                      /* of the exchange */
    uint64_t body, receipt;             /* where they are in the pool of a near sender; 0: nowhere */
    uint32_t serial;                    /* N for the Nth message of its sender, for traces */
    uint8_t named, rendezvous, unused[2];       /* named: as in the exchange; rendezvous: the sender waits for an
                                         * answer; unused: zeros */
};

enum { STAGE = 8192, SMALL = STAGE - (int)sizeof(struct head) };     /* payload up to SMALL bytes is in the head */

/* A slot has a message in flight. */
struct slot {
    struct exchange exchange;           /* the exchange of which the message is a part */
    struct head *stage;                 /* [STAGE bytes and an answer] the head as sent or received; kept for the next
                                         * user of the slot */
    MPI_Request head, *body;            /* body: [pieces] */
    MPI_Request reply;                  /* of a rendezvous: the answer to the head */
    int64_t *answer;                    /* virtual time at which the receive was posted; after the stage, because slots
                                         * move */
    struct passage passage;             /* for the clock */
    void *data;                         /* the device's, or the host's */
    char *view;                         /* the same for MPI, while it may read or write there; NULL: not now */
    uint64_t bytes;                     /* to send, or expected */
    int pieces, room;                   /* MPI messages of the body; `body` has space for so many */
    int peer;                           /* rank in the group */
    bool sending;                       /* this device sends; else it receives */
    bool stays;                         /* near: a body that is received stays with its sender until it is waited for */
    const char *lent;                   /* where that is, as mapped here; NULL: not yet, or it does not stay */
    struct receipt *lender;             /* to be signed when it has been waited for */
    bool direct;                        /* MPI gets the device's address, and the head no payload */
    bool near;                          /* the peer is on this machine: no request of MPI is used */
    bool here, answered;                /* the head has been received; near: the answer been sent, or received */
    bool whole;                         /* all of it has been received, before it is waited for */
    bool written;                       /* near: the head is in the peer's inbox */
    int got;                            /* bytes received with the head, itself included */
    struct receipt *receipt;            /* in the pool, for what this slot sends; NULL: no device is near */
    enum stream stream;                 /* that sends or receives */
    bool late;                          /* the body is aside: of a receive that a flight follows (flight.h), until it is
                                         * waited for; of a send, what its stream read, or a copy in the pool */
    char *aside;                        /* [aside_room] kept for the next user of the slot if it is not large */
    uint64_t aside_room;                /* bytes of `aside` */
    int failed;                         /* what MPI said when it could not start; MPI_SUCCESS else */
    int next_free;                      /* list of free slots; -1: the last */
};

struct transport {
    MPI_Comm heads, bodies;             /* for heads with short payloads, and for the rest of long ones */
    MPI_Comm answers;                   /* MPI_COMM_NULL: no message waits for its receiver */
    struct bells bells;                 /* wake devices of this machine that wait */
    struct progress progress;           /* what every device waits for, to find deadlocks */
    struct slot *slot;                  /* [slots] messages in flight and free slots; moves when it grows */
    int slots, first_free;              /* first_free: -1 if all are in use */
    int *held, helds, held_room;        /* slots of late sends that have not started, oldest first */
    struct near near;                   /* memory shared with the devices of this machine */
    struct letters letters;             /* heads from near devices */
    uint64_t piece;                     /* bytes of one MPI message at most */
    bool synchronous;                   /* sends end only when they are received: finds programs that rely on buffers */
    bool direct;                        /* MPI reads and writes the device's memory itself */
    uint64_t delay, random;             /* nanoseconds at most; state of the generator */
};

/* ---- connect.c --------------------------------------------------------------------------------------------------- */

/** MPI_Init unless that is done; rank and size.  @return OK, or ERR_COMM with nothing to close. */
enum error_code transport_begin(struct comm *, struct error *);

/** Connect: communicators, limits from the environment.  Collective, also for devices that have failed before.
 *  @param local  what happened here so far.
 *  @return OK, or on every device the code and words of the first that failed, with nothing to close. */
enum error_code transport_open(struct comm *, enum error_code local, struct error *);
void transport_close(struct comm *);

/* ---- slots.c ----------------------------------------------------------------------------------------------------- */

/** Take a free slot with memory for its head, and for its body's requests.  @param near  whether its peer is.
 *  @return its number; -1 if there is no memory. */
int slot_take(struct transport *, uint64_t bytes, bool near);
void slot_free(struct transport *, int slot);

/** Have host memory for the body beside the device's.  @return false: there is none. */
bool slot_make_room_aside(struct slot *);

enum { KEPT_ASIDE = 1 << 23 };          /* the most bytes of it that are kept for the slot's next message */

/** Free all slots, at the end. */
void transport_free_slots(struct comm *);

/** Whether the payload follows the head. */
static inline bool has_body(const struct slot *slot) { return slot->bytes > (slot->direct ? 0 : SMALL); }

/** The memory from which the body is sent, or into which it is received. */
static inline char *body_of(const struct slot *slot) { return slot->late ? slot->aside : slot->view; }

static inline int peer_of(const struct slot *slot)
{
    return comm_process(slot->exchange.group->comm, slot->exchange.group->member[slot->peer]);
}

/** The tag of a message and of its answer. */
int slot_tag(const struct slot *);

/** Give MPI access to the data of a send, or of a receive whose data is not in the head, does not go to a copy, and
 *  does not stay with its sender. */
void slot_open_view(struct comm *, struct slot *);
void slot_close_view(struct comm *, struct slot *);

/* ---- transport.c ------------------------------------------------------------------------------------------------- */

/* MPI as a carrier: carrier.h. */
int transport_start(struct exchange *, int peer, void *data, uint64_t bytes, const struct passage *, enum side);
enum error_code transport_wait(struct comm *, int slot, struct delivery *, struct error *);
const void *transport_look(struct comm *, int slot);
void transport_meet(struct comm *, const struct message *, int number, bool sent);
void transport_abort(struct comm *, int exit_status);

/** MPI messages that carry this payload after the head. */
static inline int transport_pieces(const struct transport *transport, uint64_t bytes)
{
    return bytes <= (transport->direct ? 0 : SMALL) ? 0 : (int)((bytes + transport->piece - 1) / transport->piece);
}

/** Bytes of piece i. */
static inline int transport_piece_bytes(const struct transport *transport, uint64_t bytes, int i)
{
    const uint64_t left = bytes - (uint64_t)i * transport->piece;
    return (int)(left < transport->piece ? left : transport->piece);
}

#endif
