/* trace.h -- what a device did, and when in virtual time, for a viewer of Chrome traces (ui.perfetto.dev).
 *
 * A clock with a trace records every operation, and for each message the times at which it kept a port busy.  Without
 * one nothing is recorded.  Memory is bounded: at TRACE_LIMIT spans recording ends, and says so.
 *
 * clock.c and arena.c record, comm/exchange.c announces messages, and draw/trace_file.c writes the file.
 */
#ifndef ORRERY_TRACE_H
#define ORRERY_TRACE_H

#include "emulated_devices/device/arena.h"
#include "emulated_devices/device/clock.h"
#include <stddef.h>

enum { TRACE_LIMIT = 1 << 18, TRACE_NAME = 48, TRACE_KINDS = 16 };

/* Where in a step a device is. */
struct trace_place {
    const char *pass;                   /* letter of a pipeline's action, "F"; NULL: outside the pipeline */
    int micro;                          /* microbatch; means nothing outside the pipeline */
    int layer;                          /* -1: the embedding; the number of layers: the loss */
    bool in_layer;                      /* false: in none, and `layer` means nothing */
};

/* The message whose port times are recorded next. */
struct trace_label {
    char name[TRACE_NAME];              /* "allreduce over dp" */
    const char *scheme;                 /* whose message it is: "zero3"; NULL: no scheme's */
    uint64_t bytes;                     /* length of the message */
    int peer;                           /* the other device */
    int64_t flow;                       /* the same number at both ends, and only there */
};

struct span {
    struct trace_label what;            /* of an operation only the name */
    int row;                            /* a stream, or a port as trace_port and trace_shared_port number it */
    bool first;                         /* of its message: where the arrow begins or ends */
    struct trace_place place;           /* where in the step the device was */
    double flops, bytes;                /* of an operation */
    picoseconds start, end;             /* virtual time */
};

/* The arena's use from a time on. */
struct trace_memory { picoseconds at; struct arena_use use; };

struct trace {
    struct span *span;                  /* [count] in the order of recording */
    size_t count, room;                 /* spans recorded, and for how many there is memory */
    struct trace_memory *memory;        /* [memories] one at each change of the arena's use */
    size_t memories, memory_room;       /* entries of `memory`, and for how many there is room */
    struct trace_place place;           /* now */
    int layers;                         /* of the model, to name the loss */
    const char *scheme[TRACE_KINDS];    /* by traffic kind (comm/ledger.h) */
    bool full;                          /* something was left out */
    bool fresh;                         /* the label has had no span yet */
    struct trace_label label;           /* given to the port spans of the message that follows */
};

/** Rows: streams first, then two for each port of a direction. */
static inline int trace_port(int port, bool sends) { return STREAMS + 2 * port + !sends; }

/** Behind these, rows of messages beside those of other streams: two for each port and stream. */
static inline int trace_shared_port(int port, bool sends, enum stream stream)
{
    return STREAMS + 2 * CLUSTER_MOST_PORTS * (1 + (int)stream) + 2 * port + !sends;
}

enum { TRACE_ROWS = STREAMS + 2 * CLUSTER_MOST_PORTS * (1 + PORT_LANES) };

/** Announce the message that the clock is about to move through a port. */
void trace_announce(struct trace *, const char *name, const char *scheme, uint64_t bytes, int peer, int64_t flow);

/** The device begins a part of a step, or leaves it (pass NULL; false).  A trace of NULL is none. */
void trace_enter_action(struct trace *, const char *pass, int micro);
void trace_enter_layer(struct trace *, bool in_layer, int layer);

/** The name of a place's layer: "h.3", "embedding", "loss"; "" for none. */
struct trace_text { char text[16]; };
struct trace_text trace_layer_name(const struct trace *, const struct trace_place *);

/* For the clock and the arena. */
void trace_work(struct trace *, int row, const char *name, struct op_cost, picoseconds start, picoseconds end);
void trace_message(struct trace *, int row, picoseconds start, picoseconds end);
void trace_arena(struct trace *, picoseconds at, const struct arena_use *);

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
