/* collective.h -- what happened on every device during one collective, element by element; between the files of
 * `orrery show OP ALGO`.
 *
 * The devices work on symbols.  An element is an int64 whose low half counts, in two bits for each device, how often
 * that device's number is in it, and whose high half is its place in the vector, once for each such number.  Adding two
 * elements of the same place adds both halves: the place is high half / numbers.  A number that is added twice shows.
 */
#ifndef ORRERY_DRAW_COLLECTIVE_H
#define ORRERY_DRAW_COLLECTIVE_H

#include "emulated_devices/collectives/collective.h"

enum { SHOW_MOST_DEVICES = 16 };

static inline int64_t symbol(int device, int64_t place) { return (int64_t)1 << 2 * device | place << 32; }

/* How often this device's number is in it, up to three times. */
static inline int symbol_times(int64_t s, int device) { return (int)(s >> 2 * device & 3); }

/* A bit for each device whose number is in it. */
static inline unsigned symbol_devices(int64_t s)
{
    unsigned set = 0;
    for (int d = 0; d < SHOW_MOST_DEVICES; d++) set |= (unsigned)(symbol_times(s, d) > 0) << d;
    return set;
}

static inline int64_t symbol_place(int64_t s)
{
    int numbers = 0;
    for (int d = 0; d < SHOW_MOST_DEVICES; d++) numbers += symbol_times(s, d);
    return numbers > 0 ? (s >> 32) / numbers : 0;
}

/* A message that came in, or a sum that was made, and what was then in the buffer. */
struct show_event {
    int device, from;                   /* from: -1 for a sum */
    int64_t step;     /* round of a machine on which a message occupies its ports for one round, and all else is free */
    picoseconds time;
    int64_t count;
    const int64_t *symbols;             /* [count] */
};

/* What a device has at the end, held to what it must have. */
struct show_verdict {
    int64_t elements, wrong;            /* how many it must have, and how many of them are something else */
    int64_t got, want;                  /* of the first wrong one */
};

struct show_trace {
    const struct algorithm *algorithm;
    struct collective call;
    int P;
    const struct cluster *cluster;      /* of the times */
    struct show_event *event;
    int64_t events;
    picoseconds end[SHOW_MOST_DEVICES]; /* when each device was done */
    struct traffic traffic[SHOW_MOST_DEVICES];
    struct show_verdict verdict[SHOW_MOST_DEVICES];
};

/** Elements of the vector; of an all-to-all, elements that any one device receives. */
static inline int64_t show_places(const struct show_trace *t)
{
    if (t->algorithm->operation == BARRIER) return 0;
    return t->algorithm->operation == ALLTOALL ? t->P * t->call.count : t->call.count;
}

/** Hold what a device has in out to what the operation must give it.  Local. */
struct show_verdict show_judge(enum operation, const struct collective *, int rank, int P);

/** A line to stdout for every device whose result or traffic is wrong, or one that says that all is right.
 *  @return OK, or ERR_CHECK naming the first. */
enum error_code show_verdict_print(const struct show_trace *, struct error *);

/** Draw it to stdout, step by step, in 100 columns.  @return OK or ERR_MEMORY. */
enum error_code show_draw(const struct show_trace *, bool colours, struct error *);

#endif
