/* step_path.h -- where the time of a planned step goes: the chain of causes that ends with it, and each device's waits.
 *
 * The critical path is followed backwards from the end of the device that ends last.  What ended there began when the
 * stream was free, when another stream had done something, or when a message had arrived; a message left when its
 * sender sent it or, in a rendezvous, when its receiver was ready.  So the pieces of the path follow each other without
 * gaps, and add up to the time of the steps to the picosecond.  Where two causes end at the same time, either is one:
 * the path has the stream's own.
 *
 * Both read the events of all devices that ran (device/events.h).  If the events were replayed on shared links, the
 * times are those of the replay.  cli/train/search.c, run/plan.c, run/report/plan_report.c and search/search.c call
 * these functions.
 */
#ifndef ORRERY_STEP_PATH_H
#define ORRERY_STEP_PATH_H

#include "emulated_devices/comm/folding.h"
#include "emulated_devices/comm/ledger.h"
#include "emulated_devices/device/clock.h"
#include "emulated_devices/device/events.h"

/* Events of all devices that are kept at most for a path or for shares: 320 MiB. */
enum { STEP_MOST_EVENTS = 1 << 23 };

enum path_kind {
    PATH_WORK,                          /* a stream or an engine works */
    PATH_MESSAGE,                       /* a message is on its way: latency, bytes, and its turn at ports and links */
    PATH_IDLE,                          /* a stream waits for an engine, or for a time that no list has */
};

struct path_piece {
    enum path_kind kind;                /* decides which fields below are set */
    picoseconds from, to;               /* virtual time */
    int device;                         /* that works, or that receives */
    int stream;                         /* that works, sends or waits */
    const char *what;                   /* of work: its name */
    int sender;                         /* of a message; in a folded run it and the receiver may not have run */
    enum traffic_kind traffic;          /* whose it is */
    uint64_t bytes;                     /* of a message */
};

typedef void path_fn(const struct path_piece *, void *context);

/**
 * Follow the path backwards.  Pure.
 * A device of which there are no events is followed on the one that stands for it.
 * `each` is called with each piece that takes time, the last one first.
 * @return the time of the steps: the sum of all pieces; -1 if events were left out, or there is no memory.
 */
picoseconds step_path(const struct folding *, struct events *const *events, path_fn *each, void *context);

/* How a device spends the time of the steps on its compute stream.  All fields together are that time. */
struct step_share {
    picoseconds computing;              /* operations */
    picoseconds waiting[TRAFFIC_KIND_COUNT];    /* for messages, and for streams that communicate */
    picoseconds engines;                /* for copies, the drive and the host's computing */
    picoseconds starts;                 /* for the host, which starts kernels */
    picoseconds ended;                  /* after its last event, until the last device's */
};

/** How one of the devices that ran spends the time until `end`, that of the steps.  Pure. */
struct step_share step_share(const struct events *, picoseconds end);

/** The time at which the last of the devices that ran ends; -1 if events were left out. */
picoseconds step_end(const struct folding *, struct events *const *events);

/* A share waits so long for other stages of the pipeline, or for slower devices: at the sums of losses and norms, and
 * at the end.  The rest of the waits is communication that no computation hides. */
picoseconds step_share_bubble(const struct step_share *);
picoseconds step_share_exposed(const struct step_share *);

/* Pieces of the path of one sort: work of one name, or messages of one kind over one level of links. */
struct path_row { struct path_piece like; int level, pieces, devices; picoseconds takes; };

enum { PATH_ROWS = 128 };
struct plan_path {
    picoseconds total;                  /* of all rows: the time of the steps; -1: the path is not known */
    struct path_row row[PATH_ROWS];     /* what takes longest first; what has no room is added to the last one */
    int rows;                           /* entries of `row` */
    struct step_share share;            /* the mean of all devices */
    picoseconds least, most;            /* that a device computes */
};

/** Add up the path and the waits of a plan that has run.  @return OK or ERR_MEMORY. */
enum error_code plan_path_of(struct plan_path *, const struct cluster *, const struct folding *,
                             struct events *const *events, struct error *);

#endif
