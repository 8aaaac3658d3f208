/* trace.h -- what a device did, and when in virtual time, for a viewer of Chrome traces (ui.perfetto.dev).
 *
 * A clock with a trace records every operation, and for each message the times at which it kept a port busy.  Without
 * one nothing is recorded.  Memory is bounded: at TRACE_LIMIT spans recording ends, and says so.
 */
#ifndef ORRERY_TRACE_H
#define ORRERY_TRACE_H

#include "emulated_devices/device/clock.h"
#include <stddef.h>

enum { TRACE_LIMIT = 1 << 18, TRACE_NAME = 48 };

/* The message whose port times are recorded next. */
struct trace_label {
    char name[TRACE_NAME];              /* "allreduce over dp" */
    uint64_t bytes;
    int peer;                           /* the other device */
    int64_t flow;                       /* the same number at both ends, and only there */
};

struct span {
    struct trace_label what;            /* of an operation only the name */
    int row;                            /* a stream, or a port as trace_port numbers it */
    bool first;                         /* of its message: where the arrow begins or ends */
    picoseconds start, end;
};

struct trace {
    struct span *span;
    size_t count, room;
    bool full;                          /* something was left out */
    bool fresh;                         /* the label has had no span yet */
    struct trace_label label;
};

/** Rows: streams first, then two for each level. */
static inline int trace_port(int level, bool sends) { return STREAMS + 2 * level + !sends; }

/** Announce the message that the clock is about to move through a port. */
void trace_announce(struct trace *, const char *name, uint64_t bytes, int peer, int64_t flow);

/* For the clock. */
void trace_work(struct trace *, int row, const char *name, picoseconds start, picoseconds end);
void trace_message(struct trace *, int row, picoseconds start, picoseconds end);

/**
 * The device's events as JSON, for the list "traceEvents": with names of the process and its rows, each event followed
 * by a comma and a newline.  The same on every run.
 * @param place      what stands beside the device's number: "dp=1 tp=0".
 * @param[out] text  length bytes, for free(); NULL on failure.
 * @return OK or ERR_MEMORY.
 */
enum error_code trace_format(const struct trace *, const struct clock *, int device, const char *place, char **text,
                             size_t *length, struct error *);

void trace_free(struct trace *);

#endif
