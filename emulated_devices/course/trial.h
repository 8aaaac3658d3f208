/* trial.h -- one call of a student's function on some devices, for the checks of a lesson.
 *
 *     for (const int *W = COURSE_DEVICES; *W && !j->failed; W++) {
 *         struct trial *r = trial_open(j, "ring_all_reduce", *W, "%d elements", n);
 *         for (int d = 0; d < *W; d++) {
 *             judge_whole(j, trial_buffer(r, d, 0, 4 * n, BUFFER_BOTH), n, 100);
 *             r->device[d].number[0] = n;
 *         }
 *         if (trial_call(r)) trial_expect_floats(r, 0, 0, want, n, "x");
 *         trial_close(r);
 *     }
 *
 * The student's function runs as a process a device; all that it asks for is done by devices of a crew (comm/crew.h) in
 * another process, which counts.  The numbers here are the crew's.
 * Checks of lessons call it; draw.c and serve.c use the same struct.  A failure of a run fails the check, and the
 * check goes on.
 */
#ifndef ORRERY_COURSE_TRIAL_H
#define ORRERY_COURSE_TRIAL_H

#include "emulated_devices/course/mistake.h"
#include "emulated_devices/device/cluster.h"
#include "tutorials/worker/protocol.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct judge;

enum { RUN_TEXT = 400, RUN_EVENTS = 4096, RUN_LINES = 1600, RUN_TABLE = 1000, RUN_SUSPECTS = 4 };

/* This is an event on a device, for drawings. */
enum event_kind { EVENT_SEND, EVENT_RECEIVE, EVENT_COMPUTE, EVENT_COLLECTIVE };       /* the last: peer is its
                                                                                       * enum collective_kind */
struct event { int32_t kind, device, peer; uint64_t bytes; picoseconds from, until; };

enum waiting { NOT_WAITING, WAITS_TO_SEND, WAITS_TO_RECEIVE, WAITS_IN_COLLECTIVE, HAS_RETURNED };

/* A collective operation, as a device has called it. */
struct asked_collective {
    int32_t kind, root;                         /* enum collective_kind; of a broadcast */
    int64_t count, give[WORKER_MOST_DEVICES], take[WORKER_MOST_DEVICES];        /* give, take: of an all_to_all */
};

/* Their names in course.h, by enum collective_kind. */
extern const char *const trial_collectives[];

struct trial_device {
    /* the call, before trial_call */
    struct { void *data; uint64_t bytes; uint32_t way, skew;
             const void *before;                /* a copy from before the call; NULL: it had nothing */
           } buffer[WORKER_BUFFERS];
    int64_t number[WORKER_NUMBERS];             /* whole numbers, and others: as calls.c takes them */
    double given[WORKER_NUMBERS];               /**< Arguments that are not whole numbers. */
    /* after it: what came back, and what was counted */
    int64_t result;                             /**< Whole number that came back. */
    double real;                                /**< Real number that came back. */
    uint64_t messages, bytes;                   /* sent, by itself and by collective operations */
    uint64_t collectives;                       /* calls of collective operations */
    uint64_t additions, peak;                   /* by add_into; most bytes allocated at once */
    picoseconds time;                           /* when its function returned */
    /* what it is doing */
    int32_t doing, peer;
    uint64_t waits_bytes;                       /**< Bytes of the message that the device waits for. */
    struct asked_collective asked;              /* the last one */
};

/* These are numbers that a result has after a known mistake, such as those of the step before. */
struct trial_suspect { enum mistake mistake; const char *text; const float *values; int64_t count; int buffer; };

/* These are the ranks of the devices of a group; size 0: there is none. */
struct trial_group { int size, rank[WORKER_MOST_DEVICES]; };

struct trial {
    struct judge *judge;                        /* the check that made the run */
    const char *function;                       /* of the student, which every device calls */
    char label[160];                            /* "3 devices, 1003 elements": how messages name this run */
    int devices, groups;                        /* of the run */
    struct trial_group group[WORKER_GROUPS];      /* [0]: all; more: set by the check.  A device sees those that it is
                                                 * in, others have size 0 */
    struct cluster cluster;                     /* "textbook": 10 us and 50 GB/s, computing takes no time */
    bool meets;                                 /* every message waits for its receiver; else none does */
    struct trial_device device[WORKER_MOST_DEVICES];    /* [devices] arguments and results */
    struct event event[RUN_EVENTS];             /* [events] what devices did, for drawings */
    int events;                                 /* those that had room */
    char lines[RUN_LINES];                      /* that the student's code said */
    struct trial_suspect suspect[RUN_SUSPECTS]; /* [suspects] what mistake.c compares with */
    int suspects;                               /**< Entries of `suspect`. */
    char table[RUN_TABLE];                      /* a short array that is wrong: each number, and what it should be */
    /* how it ended */
    int ended, culprit;                         /* enum trial_end; device, -1: several, which `why` names */
    bool deadlock;                              /* devices wait for ever: their `doing` says for what */
    char why[RUN_TEXT];                         /**< Reason of the end, as text. */
    int32_t first;                              /* process of device 0's worker; 0: not started */
    size_t mapped, used;                        /* memory that all processes of the run share */
};

enum trial_end { RUN_UNKNOWN, RUN_DONE, RUN_MISUSED, RUN_BROKEN };

/** Prepare a call of `function` on so many devices.  The rest names the run in messages, after "3 devices".
 *  @return never NULL: without memory the judge ends. */
struct trial *trial_open(struct judge *, const char *function, int devices, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Buffer i of a device's call: zeros, to be filled if it goes in.  @return its memory, which trial_call overwrites
 *  with what comes back if it goes out. */
void *trial_buffer(struct trial *, int device, int i, uint64_t bytes, enum buffer_way);

/** Buffer i of a device's call with a copy of these bytes in it.  @return its memory, as trial_buffer. */
void *trial_copy(struct trial *, int device, int i, const void *from, uint64_t bytes, enum buffer_way);

/** Buffer i of a device's call has `count` floats: a copy of `from` goes in, what the function writes comes out, or
 *  both. */
void trial_in(struct trial *, int device, int i, const float *from, int64_t count);
void trial_out(struct trial *, int device, int i, int64_t count);
void trial_both(struct trial *, int device, int i, const float *from, int64_t count);

/** Let every message of the run wait for its receiver, and say so in the run's name. */
void trial_meets(struct trial *);

/** Run it.  @return whether the function returned on all devices; if not, the check has failed: deadlock, crash, too
 *  long, or a wrong call, with a text that says who, and a drawing. */
bool trial_call(struct trial *);

/** Free it.  May be called with any result. */
void trial_close(struct trial *);

/* ---- comparing: each fails the check with a text that has the run, the device, what came and what should have ---- */

/** Name what buffer i has after a mistake of this lesson: a wrong buffer with these numbers is explained by the text.
 *  Values and text stay where they are until the run is closed. */
void trial_suspect(struct trial *, int i, const float *values, int64_t count, enum mistake, const char *text);

/** Explain a wrong array, or the part of it that begins at `wrong->first`: the mistake becomes that of the check, and a
 *  short array its table.  @param to  becomes ": " and the explanation, or "". */
void trial_explain(struct trial *, const struct wrong *, const char *what, char *to, size_t size);

/** A hint to what a returned number may mean, to be written behind it; "" if nothing is strange about it. */
const char *trial_meaning(double got);

/** Buffer i of a device has the same bits.  @param what  its name for the student: "x". */
bool trial_expect_floats(struct trial *, int device, int i, const float *want, int64_t count, const char *what);

/** |got - want| <= bound, each its own. */
bool trial_expect_near(struct trial *, int device, int i, const double *want, const double *bound, int64_t count,
                     const char *what);

/** Compare the messages and bytes that a device sent.  @param formula  for the student: "2 (W-1)". */
bool trial_expect_sent(struct trial *, int device, uint64_t messages, uint64_t bytes, const char *formula);

/** Calls of collective operations of a device, which sends nothing by itself.
 *  @param where  behind the number that is asked for: "", or " in both passes". */
bool trial_expect_collectives(struct trial *, int device, uint64_t calls, const char *where);

/** The bytes that all devices sent together. */
uint64_t trial_bytes(const struct trial *);

/** Compare the most bytes that a device allocated at once. */
bool trial_expect_peak(struct trial *, int device, uint64_t most, const char *formula);

/** The time of a run is when the last device's function returned: compare it, or return it. */
bool trial_expect_time(struct trial *, picoseconds want, const char *formula);
picoseconds trial_time(const struct trial *);
/** Compute the time of an all_reduce of so many floats by all devices; an addition takes a picosecond (flop_rate
 * 1000000). */
picoseconds trial_all_reduce_time(const struct trial *, int64_t count);

/** The check fails for this reason, after "with 3 devices, 1003 elements: ", with a drawing of the run. */
bool trial_fails(struct trial *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Draw what the devices did, as text: a column a device, a line a time. */
void trial_draw(const struct trial *, char *to, size_t size);

#endif
