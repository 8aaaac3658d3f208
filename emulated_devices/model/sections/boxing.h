/* boxing.h -- moves the residual stream from a section's devices to those of the next section, which may cut it in
 * another way.
 *
 * On each side a device has a part of the stream: some rows, by copies, positions and tensor parallelism, and some
 * columns of each.  Parts of several devices may be equal.  A receiver takes what it has itself without a message, and
 * every other element from exactly one device: so no element travels twice to one device, which is the least that any
 * boxing can send.  Of several devices with the element it takes the nearest, and neighbours take from different ones.
 * Devices begin with the partner that is as far along the other side as they are on theirs.
 *
 * The gradient of the stream travels the other way by the same rule.
 *
 * Who sends what is pure: it follows from both plans and the ranks.  model/sections/sections_run.c runs it, and its
 * formula is held to the counters in every step.
 */
#ifndef ORRERY_BOXING_H
#define ORRERY_BOXING_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/part.h"

struct plan;

/* A rectangle of the stream [B S, D]: rows and columns that follow each other, in the whole and in both parts. */
struct rectangle { struct interval rows, cols; };

/* One device gives these rectangles to another, in order. */
struct boxing_transfer {
    int peer;                           /* the other device's rank */
    int count, room;                    /* rectangles */
    struct rectangle *at;               /**< Rectangles, [count], in order. */
    int64_t elements;                   /* of all of them */
};

/* One device does this at a boundary for a microbatch: its messages are sorted by peer, and `own` stays with it. */
struct boxing {
    struct part from, to;               /* its parts before and after; without elements where it is not on that side */
    int sends, receives;
    struct boxing_transfer *send, *receive;     /* [devices of the other side] */
    struct boxing_transfer own;         /**< Rectangles that stay with the device. */
};

/* The parts of all devices of a plan's mesh, in the order of ranks. */
struct boxing_side { const struct plan *plan; struct part *part; };

/** The devices of a side. */
int boxing_side_devices(const struct boxing_side *);

/** Make a device's boxing from the parts of both sides, of which the device's own are taken.  Local.
 *  @return as boxing_make. */
enum error_code boxing_between(struct boxing *, struct boxing_side *from, struct boxing_side *to, int rank,
                               struct error *);

/** Make room for a side's parts, all empty.  @return OK or ERR_MEMORY, for boxing_side_close. */
enum error_code boxing_side_open(struct boxing_side *, const struct plan *, struct error *);
void boxing_side_close(struct boxing_side *);

/**
 * Make a device's boxing of a microbatch.  Local.
 * @param from, to  plans of the sections, in the direction of travel; for a gradient `from` is the later one.
 * @return OK, for boxing_free; ERR_MEMORY; or ERR_PLAN if nobody has an element.
 */
enum error_code boxing_make(struct boxing *, const struct plan *from, const struct plan *to, int rank, int micro,
                            bool gradient, struct error *);
void boxing_free(struct boxing *);

/** Whether turning a side by one of so many parts of its devices moves what they have by as large a part of the whole.
 *  If both sides turn so, devices of a class box alike (comm/folding.h). */
bool boxing_side_turns(const struct boxing_side *, int parts);

/** Whether turning both sides by a part leaves any of their devices as many elements in common, however each side cuts
 *  them.  Elements are rows of one column.  False without memory. */
bool boxing_sides_alike(const struct boxing_side *, const struct boxing_side *, int parts);

/** Whether the stream of a microbatch turns so, or its gradient; also false without memory. */
bool boxing_stream_turns(const struct plan *, int micro, bool gradient, int parts);

/** Messages and bytes that the device sends. */
void boxing_cost(const struct boxing *, const struct group *, enum dtype, struct ledger *);

/* A boxing on its way: messages that are sent, and the memory that they read. */
struct boxing_flight {
    int count;                          /* messages */
    struct message *message;            /**< Messages on their way, [count]. */
    struct tensor *packed;              /* [count] of each, in BUFFERS */
};

/**
 * Start to send what other devices need of a tensor.  Local; boxing_arrive must follow.
 * @param stream  the device's part before; it may be freed when this function returns.
 * @return OK or ERR_MEMORY.
 */
enum error_code boxing_send(const struct boxing *, struct exchange *, struct tensor stream, struct boxing_flight *,
                            struct error *);

/** Receive the device's part after, and copy what it has itself.
 *  @param own   its part before; not read if nothing stays.  @param[out] stream  its part after.
 *  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code boxing_receive(const struct boxing *, struct exchange *, struct tensor own, struct tensor stream,
                               struct error *);

/** Wait until all that is on its way has left, and free its memory.  @return OK or ERR_COMM. */
enum error_code boxing_arrive(struct comm *, struct boxing_flight *, struct error *);

#endif
