/* show_trace.h -- what happened on every device during one collective, element by element; between the files of
 * `orrery show OP ALGO`.
 *
 * The devices work on symbols.  An element is an int64 whose low half has a bit for each device whose number is in it, and
 * whose high half is its place in the vector, once for each such device.  Adding two elements of the same place adds both
 * halves: the bits of different devices are different, so their sum is their union, and the place is high half / bits.
 */
#ifndef ORRERY_SHOW_TRACE_H
#define ORRERY_SHOW_TRACE_H

#include "emulated_devices/collectives/collective.h"

enum { SHOW_MOST_DEVICES = 16 };

static inline int64_t symbol(int device, int64_t place) { return (int64_t)1 << device | place << 32; }
static inline unsigned symbol_devices(int64_t s) { return (unsigned)(s & 0xffffffff); }
static inline int64_t symbol_place(int64_t s)
{
    int devices = 0;
    for (unsigned bits = symbol_devices(s); bits; bits &= bits - 1) devices++;
    return devices > 0 ? (s >> 32) / devices : 0;
}

/* A message that came in, or a sum that was made, and what was then in the buffer. */
struct show_event {
    int device, from;                   /* from: -1 for a sum */
    int64_t step;                       /* round of a machine on which a message occupies its ports for one round, and all else is free */
    picoseconds time;
    int64_t count;
    const int64_t *symbols;             /* [count] */
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
};

/** Elements of the vector; of an all-to-all, elements that any one device receives. */
static inline int64_t show_places(const struct show_trace *t)
{
    if (t->algorithm->operation == BARRIER) return 0;
    return t->algorithm->operation == ALLTOALL ? t->P * t->call.count : t->call.count;
}

/** Draw it to stdout, step by step, in 100 columns.  @return OK or ERR_MEMORY. */
enum error_code show_draw(const struct show_trace *, bool colours, struct error *);

#endif
