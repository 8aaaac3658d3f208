/* clock.h -- the virtual time of one device, in integer picoseconds.
 *
 * Time advances by computing and sending, at the rates of a described cluster (cluster.h), never by the wall clock: the
 * same plan takes the same time on every laptop, under any load.
 *
 * A device has streams that compute (one at a time is current, and `now` is its time), engines that copy, and for each
 * link level a port that sends and a port that receives, or several of both (link_port).  A message of n bytes keeps a
 * port busy for d = gap + n / rate:
 *
 *   sender's port      [a, a+d]              a: when it is posted, or when the port is free
 *   receiver's port    [a+alpha, a+alpha+d]  or when that port is free; at the end the message has arrived
 *
 * A port is never idle while a message waits for it.  Messages of one stream have it in the program's order, and those
 * of several streams share it (port.h).  So the time at which a set of messages is complete does not depend on the
 * order in which the program waits for them.  The time of each message depends only on this order, never on which one
 * was first in real time.
 *
 * A host starts the device's kernels one after another, and runs ahead: a kernel begins when its stream is free and its
 * host has started it.  Where a program reads a number or waits for a message, its host waits for the device.
 * While a collective runs on another stream, the compute stream works slower, as the cluster's file says.
 *
 * A message above the link's eager limit waits for its receiver (rendezvous): a is not before the receive is posted.
 * Both sides tell each other when they posted.  The sender's port is occupied from its own posting on.
 * docs/plans/virtual_clock.md has the rest, and the limits of this clock.  Files of schemes/, bench/, draw/, comm/
 * and other rooms call these functions.  No function returns an error code.
 */
#ifndef ORRERY_CLOCK_H
#define ORRERY_CLOCK_H

#include "emulated_devices/device/disturb.h"
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/device/port.h"
#include "ref/ops/ops.h"

struct trace;
struct flight;
struct events;

/* The first six execute in program order: COMMUNICATION to TENSOR_SUMS what is sent beside computations (streams.h says
 * what is on which), BESIDE a pass beside another one (clock_beside).  The others are engines: they do one job at a
 * time while the device continues: copies from and to the host, the host's drive, computations of the host, and the
 * host's starting of kernels. */
enum stream { COMPUTE, COMMUNICATION, DISPATCH, REDUCTION, TENSOR_SUMS, BESIDE, FETCH, FLUSH, DRIVE, HOST, ISSUE,
              STREAMS };

/* Communication streams of a device. */
enum { USUAL_COMM_STREAMS = 2, MOST_COMM_STREAMS = 4 };

/* When the compute stream computes in a pass, for a pass beside it. */
struct pass_work {
    picoseconds from;                   /* the pass begins */
    uint32_t place;                     /* events of the compute stream before it */
    int count, room;                    /* intervals in `span`, and for how many it has memory */
    struct busy { picoseconds start, end; } *span;      /* [count] ascending, apart */
    bool lost;                          /* one was left out: no memory */
};

/* The host's queue: a host starts a device's kernels in the order of the program, and runs ahead of the device. */
struct starts {
    picoseconds pace;                   /* of a kernel; 0: nothing waits for the host */
    picoseconds done;                   /* the host has started all kernels so far */
    picoseconds told;                   /* up to here the events have the host's work */
    picoseconds held;                   /* that the compute stream has waited for the host so far */
};

/* A collective of another stream, beside which work is slower. */
struct talk {
    enum stream stream;                 /* that runs it */
    picoseconds from, until;            /* virtual time */
    int64_t more;                       /* percent of its usual time that work takes more */
};
enum { CLOCK_TALKS = 16 };

struct clock {
    picoseconds now;                    /* the current stream's time */
    enum stream current;                /* the stream that `now` belongs to; clock_begin and clock_end change it */
    enum stream home;                   /* to which clock_end returns: COMPUTE, or BESIDE for what that begins */
    struct pass_work *noted;            /* where computing is noted, or NULL */
    picoseconds stream[STREAMS];        /* time of each other stream */
    int comm_streams;                   /* that it uses for what it sends: 1 to MOST_COMM_STREAMS (streams.h) */
    picoseconds paid[PORT_LANES];       /* when ports have moved what messages of other streams took of this stream's
                                         * time; it is done no earlier */
    picoseconds received;               /* arrival of the last message that was waited for */
    struct starts starts;               /* what the host has done */
    struct talk talk[CLOCK_TALKS];      /* [talks] that end later than the compute stream's last work */
    int talks;
    struct cluster cluster;             /* rates, latencies and links by which time passes */
    enum dtype dtype;                   /* format of the numbers, which selects the rate of operations */
    struct port send[CLUSTER_MOST_PORTS], receive[CLUSTER_MOST_PORTS];  /* ports of this device, each way; those of a
                                         * level begin at link_first_port */
    double flops;                       /* done so far */
    picoseconds computing;              /* that operations have taken so far, on all streams */
    picoseconds worked, usual;          /* that operations took by themselves, without waits and what slows them beside
                                         * messages; and what the cluster's rates say of them.  Equal if nothing is
                                         * disturbed */
    struct disturbed disturbed;         /* what is slow, and in which step (disturb.h) */
    uint32_t sent;                      /* messages so far */
    uint8_t label;                      /* of the messages that follow, for events: whose they are */
    struct trace *trace;                /* NULL: no trace */
    struct flight *flight;              /* transfers not waited for yet (flight.h), or NULL */
    struct events *events;              /* what happens here, for a replay (events.h), or NULL */
    const int *places;                  /* of ranks on the cluster; NULL: a rank is its place */
};

/* One side of a message, as the clock sees it. */
struct passage {
    bool charged;                       /* false: takes no virtual time */
    bool rendezvous; /* the message is longer than the link's eager limit: the sender waits for the receiver */
    int level;                          /* index of the link between the two devices in cluster.link */
    int port;                           /* that the message uses, of the sender's and of the receiver's */
    uint64_t bytes;                     /* length of the message */
    picoseconds posted;                 /* when this side started it */
    picoseconds stamp;                  /* earliest arrival of its last byte, as the sender says */
    picoseconds slowed;                 /* that the sender's port took longer for it, because it shared its time */
    picoseconds carried;                /* without waits for other messages: on the sender's port and on the way; once
                                         * it is received, on the receiver's port, too */
    picoseconds more;                   /* that the way takes beyond its latency, on a slow link */
    picoseconds ready;                  /* rendezvous: when the other side posted its receive */
    uint32_t serial;                    /* N for the Nth message of its sender */
    uint32_t event;                     /* of its receive's posting */
    enum stream stream;                 /* that posted it */
};

/** A clock at zero, for a device of this cluster that computes in this format, with the usual streams. */
void clock_open(struct clock *, const struct cluster *, enum dtype);

/** Reset the clock to zero without a trace; the second form also changes the cluster. */
void clock_reset(struct clock *);
void clock_restart(struct clock *, const struct cluster *, enum dtype);

/** Compute: the current stream is busy for the longer of arithmetic and memory traffic, each rounded up once.
 *  @param what  names it in a trace; lives as long as the trace. */
void clock_compute(struct clock *, const char *what, struct op_cost);

/** The host starts a collective, or a message of a pipeline: the current stream goes on when that is done. */
void clock_start_collective(struct clock *);

/** The host waits here until the current stream has done its work so far, if programs of the cluster's set do. */
void clock_host_waits(struct clock *, enum host_wait);

/** The host reads a number that the device has computed: it starts no kernel before that is there. */
void clock_host_reads(struct clock *);

/** A step ends: the host does what it does once a step.  The current stream goes on when the host is done. */
void clock_end_step(struct clock *);

/** The current stream, which does not compute, has run a collective since `from`: until now, work that the compute
 *  stream does meanwhile takes so many percent of its time.  @param percent  100: the same. */
void clock_talked(struct clock *, picoseconds from, int64_t percent);

/** Give an engine a job.  It begins after the engine's earlier jobs and not before `from`, when its inputs are ready.
 *  @return when it is done, for clock_wait; clock_join(engine) waits for all its jobs. */
picoseconds clock_job(struct clock *, enum stream engine, const char *what, picoseconds from, picoseconds takes,
                      uint64_t bytes);

/** A job of FETCH, which copies from the host's memory, or of FLUSH, which copies to it. */
picoseconds clock_copy(struct clock *, enum stream engine, picoseconds from, uint64_t bytes);

/** A job of HOST: as clock_compute, in this format at the host's rates. */
picoseconds clock_host(struct clock *, const char *what, picoseconds from, struct op_cost, enum dtype);

/** All that follows, until clock_end, is executed by another stream: from now on, after its earlier work.  At
 *  clock_end the compute stream continues from the time of clock_begin; clock_join waits for the other stream. */
void clock_begin(struct clock *, enum stream);
void clock_end(struct clock *);

/** Note from now on when the compute stream computes, until clock_beside.
 *  @param work  the caller's, zeros or used before; its span is for free(). */
void clock_note(struct clock *, struct pass_work *work);

/** All that follows, until clock_end, is a pass beside the noted one: its stream begins when that began, and
 * computes while
 *  the compute stream, as noted, does not.  Messages of both share the ports.  Without memory for the notes it begins
 *  now. */
void clock_beside(struct clock *);

/** Mark what a stream other than COMPUTE has just written, besides messages and sums: it is in flight (flight.h). */
void clock_made(struct clock *, void *data, uint64_t bytes);

/** The current stream waits for all work of another one. */
void clock_join(struct clock *, enum stream);

/** The current stream waits until a time. */
void clock_wait(struct clock *, picoseconds until);

/* All members of a group come to a meeting before, or after, a message of one of them, which names the meeting. */
struct meeting { int leader; uint32_t serial; bool after; int members; };

/** The current stream waits until all members of a group have come.  @param until  when the last of them comes. */
void clock_meet(struct clock *, picoseconds until, struct meeting);

/** How long this message takes by the cluster's rates, if no other is on its ports. */
picoseconds clock_usual(const struct clock *, const struct passage *);

/** Whether a message on this cluster can be a rendezvous. */
bool clock_has_rendezvous(const struct clock *);

/** Send a message of this many bytes from one rank to another now.  The current stream continues at once. */
struct passage clock_send(struct clock *, int from, int to, uint64_t bytes);

/** The sender waits for its message: takes no time, except for a rendezvous, which ends when its last byte has left.
 *  @param passage  with .ready. */
void clock_sent(struct clock *, const struct passage *passage);

/** The receive of a message is posted now. */
struct passage clock_post(struct clock *, int from, int to, uint64_t bytes);

/** The receiver waits for the message: the port receives it, then the current stream continues.
 * @param[in,out] passage  with .stamp and .carried, which grows by what the receiver's port takes beyond the usual. */
void clock_receive(struct clock *, struct passage *passage);

#endif
