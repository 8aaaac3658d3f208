/* comm.h -- communication between devices: groups, exchanges, messages, and a count of each of them.
 *
 * The files in this folder are the only ones that call MPI.  No call blocks inside MPI: MPICH spins in blocking calls,
 * and with more ranks than cores this takes the core from the rank that is waited for.  Every wait starts the
 * non-blocking call, tests, and yields the core.
 *
 * A *group* is a list of ranks with its own context; creating one is local and cheap.  One *exchange* is one
 * operation on a group (an all-reduce, a send from stage to stage); messages of two groups or of two exchanges never
 * mix, because context and exchange number are in the tag (and, in full, in the message).  All members of a group begin
 * the same exchanges in the same order.
 *
 * CONTROL exchanges take no virtual time.
 *
 * Environment
 *   ORRERY_WAIT_LIMIT=S   seconds (120) in which no device of the job computes and no message arrives, before a device
 *                         reports which device waits for which and ends the job with status 1.  Long enough for writing
 *                         a checkpoint to a disk.
 *   ORRERY_CHECK_CALLS=1  before each collective its members compare their arguments; debug builds do, unless it is 0
 *   ORRERY_MAPPED=0       large messages between devices of one machine go through MPI, too, instead of being copied
 *                         once from memory to memory (near.h); results and counters are the same
 *   ORRERY_DIRECT=yes     MPI gets addresses of the device's memory, as a CUDA-aware one takes them; auto: if MPI says
 *                         that it does; no, the default: copies in the host's memory
 *   ORRERY_SYNCHRONOUS=1  no send completes before its receive has begun: finds programs that rely on buffering
 *   ORRERY_BACKEND=NAME   for devices that are opened without naming a backend (device/device.h)
 *   ORRERY_STREAMS=W      off, earliest, latest or random:SEED: when data in flight arrives (device/flight.h); finds
 *                         missing waits.  But for off, buffers of messages are watched (watch.h)
 *   ORRERY_DELAY=N        up to N microseconds of random delay before sends and waits: finds results that depend on
 *                         timing
 *
 * Files of collectives/, schemes/, model/, verify/ and other rooms call these functions.
 */
#ifndef ORRERY_COMM_H
#define ORRERY_COMM_H

#include "emulated_devices/comm/ledger.h"
#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/device/backend.h"

enum { WAIT_LIMIT = 120 };              /* seconds, unless the environment says otherwise */

/* ---- the world ---------------------------------------------------------------------------------------------- */

struct comm {
    struct device *device;                      /* whose clock the messages move */
    int rank, size;                             /* this device's world rank; number of devices */
    const int *process;                         /* [size] of a part of a job: the rank in the whole job of each device;
                                                   NULL: the same */
    int cores;                                  /* of this process for itself (sharing.h), the same on every device */
    uint32_t *contexts;                         /* [size] groups made so far together with each device */
    struct ledger counted;                      /* every message and addition so far */
    struct ledger expected;                     /* the formulas' sum over all calls so far */
    struct traffic *rehearsal;                  /* not NULL: messages are counted here, not sent; no time passes */
    const struct carrier *carrier;              /* of messages: MPI, or a crew (crew.h) */
    struct transport *transport;                /* MPI's side of it */
    struct post *post;                          /* a crew's side of it */
    struct group *everyone;                     /* for agreement and barriers */
    struct recorder *recorder;                  /* of this device's calls (recorder.h); NULL: nobody records */
    struct message_watch *watch;                /* of the buffers of messages (watch.h); NULL: nobody watches */
    bool failed;                                /* devices have agreed on an error */
    bool checks_calls;                          /* collectives check that all members call them alike */
    const struct listener *listener;            /* called for arrived messages and sums, or NULL */
};

/**
 * Connect this device with all others.
 * Collective over all processes of the job; must be the first use of MPI.
 * @return OK, or on every device the same: ERR_COMM, with the message of the first device that failed; nothing to
 *     close.
 */
enum error_code comm_open(struct comm *, struct device *, struct error *);

/** Whether MPI sends messages with UCX.  May be called before comm_open. */
bool comm_uses_ucx(void);

/** Whether MPI finds its other processes by PMIx, as Open MPI does.  May be called before comm_open. */
bool comm_speaks_pmix(void);

/** Whether MPI tells its launcher only in an exit handler that this process is done, as MPICH does from 4.2 on: mpiexec
 *  kills the others if a process ends without it.  May be called before comm_open, and after comm_close. */
bool comm_ends_at_exit(void);

/** The name and version of the MPI library, in one line.  May be called before comm_open.  @return text. */
const char *comm_library(char *text, size_t size);

/** Disconnect.  Collective; every exchange must be complete. */
void comm_close(struct comm *);

/**
 * Make a comm of one device without connecting it: groups can be created and formulas evaluated, but nothing can be
 * sent.  Local.  @return OK, or ERR_MEMORY with nothing to close.
 */
enum error_code comm_outline(struct comm *, struct device *, int rank, int size, struct error *);
void comm_outline_close(struct comm *);

/** Make a comm of one device that is alone, and can run everything that sends no message.  Local; without MPI.
 *  @return OK, or ERR_MEMORY with nothing to close. */
enum error_code comm_alone(struct comm *, struct device *, struct error *);
void comm_alone_close(struct comm *);

/** The rank in the whole job, which carriers and links go by, of a device of this comm. */
static inline int comm_process(const struct comm *comm, int rank)
{
    return comm->process ? comm->process[rank] : rank;
}

/**
 * The first devices of a comm, or listed ones, as a comm of their own: the others take no part in it, and may wait for
 * its end on the whole one.  Its counters begin at 0; its messages and those of the whole comm never mix.
 * Local: no message is sent.  All of these devices call it, and nothing is sent on the whole comm until it is closed.
 * @param devices  how many; this device is one of them.
 * @param process  [devices] which, in the order of their ranks in the part, or NULL: the first; outlives the part.
 * @return OK, or ERR_MEMORY with nothing to close.
 */
enum error_code comm_part(struct comm *part, struct comm *whole, int devices, const int *process, struct error *);
void comm_part_close(struct comm *part, struct comm *whole);

/** End the whole job at once, from one device, when agreement is impossible.  Does not return. */
void comm_abort(struct comm *, int exit_status) __attribute__((noreturn));

/** Print an error and end the whole job, when agreement is impossible because others wait for messages that will not
 *  come.  Does not return. */
void comm_give_up(struct comm *, const struct error *) __attribute__((noreturn));

/**
 * Agree on one outcome: the error of the lowest rank that has one.
 * Collective over all devices.  Call it before the next message whenever a single device can have failed.
 * @param local  this device's outcome; its text is in err if it is not OK.
 * @return the same code, with the same text in err, on every device.
 */
enum error_code comm_agree(struct comm *, enum error_code local, struct error *err);

/** Every device has reached this point.  Collective; counted as CONTROL. */
void comm_barrier(struct comm *);

/** Bring the same number of bytes of every device to rank 0.  Collective; counted as CONTROL.
 *  @param[out] all  [size][bytes] by rank, on rank 0; not used elsewhere.  @return OK or ERR_COMM. */
enum error_code comm_bring(struct comm *, const void *own, uint64_t bytes, void *all, struct error *err);

/** Tell every device the bytes of rank 0.  Collective; counted as CONTROL.
 *  @param[in,out] all  [bytes], read on rank 0, written elsewhere.  @return OK or ERR_COMM. */
enum error_code comm_tell(struct comm *, void *all, uint64_t bytes, struct error *err);

/** comm_agree among the members of one group.  Collective over the group.  If even this fails, the job ends. */
enum error_code group_agree(struct group *, enum error_code local, struct error *err);

/**
 * Check that all members of a group have the same bytes, for example the digest of a plan.
 * Collective over the group; counted as CONTROL.
 * @param bytes  at most 64.  @param what  whose bytes they are, for the error.
 * @return OK or ERR_PLAN, naming a device, the same on every member; ERR_COMM.
 */
enum error_code group_same(struct group *, const void *own, uint64_t bytes, const char *what, struct error *err);

/* ---- groups ------------------------------------------------------------------------------------------------- */

/* In a folded crew (crew.h): no two members are of a class; going from one to the next of its class is turning the
 * group; or neither, and then its messages cannot be those of a class with itself. */
enum group_folds { GROUP_WHOLE, GROUP_TURNS, GROUP_BREAKS };

struct group {
    struct comm *comm;                          /* of this device; outlives the group */
    int size, rank;                             /* members, and which of them this device is */
    int *member;                                /* [size] world ranks, ascending along the group's axes */
    int *process;                               /* [size] the members' ranks in the whole job, which say where they are
                                                   on a cluster; outside a comm_part the same list as `member` */
    enum traffic_kind kind;                     /* whose messages these are: what they are counted under */
    unsigned axes;                              /* the axes in which members differ, for people; 0: all devices */
    uint32_t *context;                          /* [size] how many groups this device and each member had made together
                                                   before this one: a number both know without asking.  In every tag. */
    uint32_t exchanges;                         /* begun so far */
    enum group_folds folds;                     /* GROUP_WHOLE outside folded crews */
    bool turns;                                 /* a collective runs in which all members do the same */
    bool lists;                                 /* a collective runs on memory that has numbers on every backend, and so
                                                   has its scratch */
    uint64_t call; /* a number for the arguments of the collective that is running, or 0.  In every message:
                                                   members that were called with other arguments
                                                   do not take each other's data */
};

/**
 * The group of devices that differ from this one only in the given axes.
 * Local: no message is sent.  Any two devices make the groups that both belong to in the same order.
 * @param kind  which schemes use it: distinguishes groups of the same devices.
 * @param axes  a set of AXIS_BITs; an axis of size 1 adds no device.
 */
enum error_code group_along(struct group *, struct comm *, const struct mesh *, enum traffic_kind kind, unsigned axes,
                            struct error *);

/** The group of all devices, of no scheme: TRAFFIC_OTHER. */
enum error_code group_world(struct group *, struct comm *, struct error *);

/** Any list of distinct ranks that contains this one.  All members pass the same list. */
enum error_code group_of(struct group *, struct comm *, const int *ranks, int size, enum traffic_kind, unsigned axes,
                         struct error *);

void group_close(struct group *);

/** Say that in a folded crew devices of a class send alike over this group, though it does not turn: whoever sends has
 *  seen to that.  Local. */
static inline void group_sends_alike(struct group *group) { group->folds = GROUP_WHOLE; }

/* ---- exchanges and messages ----------------------------------------------------------------------------------- */

struct exchange {
    struct group *group;                        /* whose members take part */
    enum operation operation;                   /* under which messages and sums are counted */
    uint32_t number;                            /* N for the Nth of the group, or the name */
    bool named;                                 /* `number` is a name that both sides know, not a count */
    uint64_t call;                              /* the group's when it began */
};

/** Begin the group's next exchange.  Local.  All members begin the same exchanges in the same order. */
struct exchange exchange_begin(struct group *, enum operation);

/** An exchange between two members that is named by a number instead of by order (a pipeline's microbatch).
 *  @param name  < 2^17; one in flight at a time for each pair, direction and name. */
struct exchange exchange_named(struct group *, enum operation, uint32_t name);

/* This is a message on its way, which lives until message_wait. */
struct message { int slot; };

/**
 * Start to send bytes to / receive exactly bytes from a member.  Returns at once; buffers must stay as they are until
 * message_wait.  peer: rank within the group.  Between one pair, messages of one exchange arrive in the order sent.
 */
struct message message_send(struct exchange *, int peer, const void *data, uint64_t bytes);
struct message message_receive(struct exchange *, int peer, void *data, uint64_t bytes);

/**
 * Wait, yielding the core, until a message is complete.
 * @return OK, or ERR_COMM: the message had another length than was expected, or the transport failed.
 */
enum error_code message_wait(struct comm *, struct message, struct error *);

/**
 * Say that all messages of this device have been waited for, where a part of the program ends.  If one has not, and
 * the device follows what is in flight (device/flight.h), the next comm_agree reports it.
 * Local.
 * @param when  "at the end of step 3", for the report.
 */
void messages_have_ended(struct comm *, const char *when);

/**
 * Sleep until all messages of a list that this device receives are here, or cannot come, and then, if `sent`, until all
 * that it sends have left.  Each has to be waited for as without this call: it only saves being woken for every one.
 */
void messages_meet(struct comm *, const struct message *, int number, bool sent);

/**
 * Look at what is being received before it is waited for, where it is: with a sender on this machine in the sender's
 * memory, so that a sum reads it from there, and nothing is copied.  Counters and the clock see it when it is waited
 * for.
 *   messages_can_be_looked_at   false: none can, now
 *   message_receive_to_look     as message_receive; data: where else it is received.  A body may stay until
 *                               message_wait: wait for all of them before any message that others send in return
 *   message_look                waits, yielding the core
 * @return the bytes, until message_wait; NULL: message_wait will say what is wrong.
 */
bool messages_can_be_looked_at(const struct comm *);
struct message message_receive_to_look(struct exchange *, int peer, void *data, uint64_t bytes);
const void *message_look(struct comm *, struct message);

/** Send to one member while receiving from another, and wait for both.  A peer of -1 leaves that half out. */
enum error_code exchange_both(struct exchange *, int to, const void *out, uint64_t out_bytes,
                              int from, void *in, uint64_t in_bytes, struct error *);

/**
 * into[i] = into[i] (op) from[i]: the only arithmetic of collectives; counted and charged to the clock.
 * AVERAGE adds here; the algorithm divides by the group's size once, at its end (reduce_finish).
 * MAX and MIN keep a NaN that either side has.
 */
void reduce_local(struct exchange *, enum reduction, enum dtype, void *into, const void *from, int64_t count);

/** reduce_local in two parts: the numbers, also of a list in one call (reduce_all in device/backend.h), and counting
 *  and charging them. */
void reduce_numbers(struct exchange *, enum reduction, enum dtype, void *into, const void *from, int64_t count);
void reduce_numbers_of(struct exchange *, enum reduction, enum dtype, void *into, const void *const *part, int parts,
                       int64_t count);
void reduce_counted(struct exchange *, enum dtype, void *into, const void *from, int64_t count);

/**
 * exchange_both, then reduce_local of what was received: added where it is, if that can be looked at.
 * @param to       -1: nothing is sent.
 * @param scratch  [count] for what is received, if it has to be moved.
 */
enum error_code exchange_reduce(struct exchange *, int to, const void *out, uint64_t out_bytes, int from,
                                void *scratch, enum reduction, enum dtype, void *into, int64_t count, struct error *);

/** The division that AVERAGE still owes; nothing for the others.  Integers round toward zero. */
void reduce_finish(struct exchange *, enum reduction, enum dtype, void *x, int64_t count);

/* Callbacks for drawings and traces: called when a message has arrived, and when a sum has been made.
 * The device's clock then stands at the moment it happened.  CONTROL exchanges are not shown. */
struct listener {
    void *context;                      /* first argument of both functions */
    /* A message from member `from` of the exchange's group is in data. */
    void (*received)(void *context, const struct exchange *, int from, const void *data, uint64_t bytes);
    /* A part of a sum has been added to the `count` elements of into. */
    void (*reduced)(void *context, const struct exchange *, enum dtype, const void *into, int64_t count);
};

/* Enter what no collective does, messages to one member and additions, under the group's kind.  Local. */
void ledger_messages(struct ledger *, const struct group *, enum operation, int peer, uint64_t bytes, uint64_t times);
void ledger_additions(struct ledger *, const struct group *, enum operation, uint64_t count);

/** The level of the link to a member. */
int group_level(const struct group *, int member);

/** Scratch memory for the time of an exchange, from the device's arena (tag BUFFERS). NULL only if the
 * machine has none left. */
void *exchange_scratch(struct exchange *, uint64_t bytes);
void exchange_release(struct exchange *, void *scratch);

#endif
