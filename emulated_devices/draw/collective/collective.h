/* collective.h -- the events on every device during one collective, element by element; shared by the files of
 * `orrery show OP ALGO`.
 *
 * The devices work on symbols.  An element is an int64.  Its low half has two bits for each device: how often that
 * device's number is in the sum.  Its high half is the sum of the element's place in the vector, once for each such
 * number, so the place is high half / numbers.  Adding two elements of the same place adds both halves.  A number that
 * is added twice is detected.
 *
 * collective_show.c runs the collective and gathers events; collective_judge.c has show_judge and
 * show_verdict_print; collective_svg.c draws to a file.  Sets of devices limit the drawing to SHOW_MOST_DEVICES.
 */
#ifndef ORRERY_DRAW_COLLECTIVE_H
#define ORRERY_DRAW_COLLECTIVE_H

#include "emulated_devices/collectives/collective.h"
#include <stdio.h>

enum { SHOW_MOST_DEVICES = 16, COLLECTIVE_PANELS = 64 };

/* symbol = 1 in the two bits of the device, plus place 2^32. */
static inline int64_t symbol(int device, int64_t place) { return (int64_t)1 << 2 * device | place << 32; }

/* How often this device's number is in a symbol, up to three times. */
static inline int symbol_times(int64_t s, int device) { return (int)(s >> 2 * device & 3); }

/* The result has a bit for each device whose number is in a symbol. */
static inline unsigned symbol_devices(int64_t s)
{
    unsigned set = 0;
    for (int d = 0; d < SHOW_MOST_DEVICES; d++) set |= (unsigned)(symbol_times(s, d) > 0) << d;
    return set;
}

/* place = high half / numbers; a symbol without numbers has place 0. */
static inline int64_t symbol_place(int64_t s)
{
    int numbers = 0;
    for (int d = 0; d < SHOW_MOST_DEVICES; d++) numbers += symbol_times(s, d);
    return numbers > 0 ? (s >> 32) / numbers : 0;
}

/* A received message, or a computed sum, and the contents of the buffer after it. */
struct show_event {
    int device, from;                   /* from: -1 for a sum */
    int64_t step;                       /* a round: each message occupies its ports for one; all else takes no time */
    picoseconds time;                   /* at which the event happened: a message arrived, a sum was made */
    picoseconds start;                  /* the sender's port began with the message; the sum began */
    int64_t count;                      /* elements of the buffer */
    const int64_t *symbols;             /* [count] */
};

/* A verdict compares a device's result with the right one. */
struct show_verdict {
    int64_t elements, wrong;            /* numbers of elements that it must have, and of wrong ones */
    int64_t got, want;                  /* the first wrong one */
};

/* A device has ended with this traffic, at this time. */
struct show_end { struct traffic traffic; picoseconds time; struct show_verdict verdict; };

struct show_trace {
    const struct algorithm *algorithm;  /* that was run */
    struct collective call;             /* its arguments */
    int P;                              /* devices */
    const struct cluster *cluster;      /* for the times */
    struct show_event *event;           /* [events] of all devices */
    int64_t events;                     /* entries of `event` */
    struct show_end end[SHOW_MOST_DEVICES];     /* what each device has in the end */
};

/** The number of elements of the vector; for an all-to-all, of those that one device receives. */
static inline int64_t show_places(const struct show_trace *trace)
{
    if (trace->algorithm->operation == BARRIER) return 0;
    return trace->algorithm->operation == ALLTOALL ? trace->P * trace->call.count : trace->call.count;
}

/* This says which call is shown. */
struct collective_shown {
    enum operation operation;
    const char *algorithm;              /* NULL: the operation's first */
    int devices, count, root;           /* of the group; elements of the vector; the member that has or gets it */
    struct cluster cluster;             /* whose time is shown */
    bool plain;                         /* without colours */
    const char *svg, *page;             /* also draw to this SVG file, and to this page; NULL: no */
};

/** Check the call before processes are started.  @return OK or ERR_USAGE. */
enum error_code collective_shown_check(const struct collective_shown *, struct error *);

/** Be one device: run the call, and on rank 0 draw and judge it.  Collective over all devices.
 *  @param shown  a struct collective_shown, checked.  @return as show_draw and show_verdict_print. */
enum error_code collective_show(struct comm *, const void *shown, struct error *);

/** Compare a device's out with the operation's right result.  Local. */
struct show_verdict show_judge(enum operation, const struct collective *, int rank, int P);

/** Print a line for every device whose result or traffic is wrong, or one line if all are right.
 *  @return OK, or ERR_CHECK naming the first wrong device. */
enum error_code show_verdict_print(const struct show_trace *, struct error *);

/** Draw the collective as an SVG document: a panel for each step, at most COLLECTIVE_PANELS and the start.
 *  @param trace  a struct show_trace.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code collective_svg(FILE *to, const void *trace, struct error *);

struct film;

/** Film the collective.  @param[out] film  for film_close, also after an error.  @return OK or ERR_MEMORY. */
enum error_code collective_film(struct film *film, const struct show_trace *, struct error *);

/** Draw the collective to stdout, step by step, in 100 columns.  @return OK or ERR_MEMORY. */
enum error_code show_draw(const struct show_trace *, bool colours, struct error *);

#endif
