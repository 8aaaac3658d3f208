/* overlap.h -- three engines of one device that work at the same time: arithmetic, memory, network.
 *
 * A batch has four parts of rows.  An operation is done in items, each of which has some neighbouring parts; together
 * the items of an operation have all parts.  An item begins when its parts have passed the operation before it.  An
 * engine does one item at a time.
 *
 * Engines share the device.  With interference an engine that has the share R of it works at a speed P(R): for products
 * R itself, for attention and for messages more, since they wait for memory and links.  Shares of idle engines are
 * given to the others in proportion, so whoever works alone has full speed.
 *
 * Source  NanoFlow: bench/serving/nano.h.  P is a line through the one published point, 0.8 at 0.4; messages are
 *         assumed to be alike.
 *
 * engine_nano.c has items of a real iteration, and bench/serving/nano.c those of a described one.  The code is pure.
 */
#ifndef ORRERY_OVERLAP_H
#define ORRERY_OVERLAP_H

#include <stdbool.h>

enum overlap_engine { OVERLAP_COMPUTE, OVERLAP_MEMORY, OVERLAP_NETWORK, OVERLAP_ENGINES };
enum { OVERLAP_PARTS = 4 };             /* of a batch's rows */

struct overlap_item {
    int number;                         /* of its operation, from 0 without gaps */
    enum overlap_engine engine;         /* that does it */
    int first, parts;                   /* of the batch's rows */
    double work;                        /* seconds of the engine alone on the device */
};

/* A rule says which item an engine takes first, and how engines share the device. */
struct overlap_rule {
    bool by_rows;                       /* the first rows; else the first operation */
    bool interference;                  /* engines slow each other down */
    double share[OVERLAP_ENGINES];      /* of the device, if all work; together 1 */
};

/** Speed of an engine with a share of the device. */
double overlap_speed(enum overlap_engine, double share);

/** Seconds of all items.  @param item  [items] in the order of operations, then of rows. */
double overlap_time(const struct overlap_item *item, int items, const struct overlap_rule *);

/** The fastest rule with interference: both orders, shares in tenths.  @return its seconds. */
double overlap_search(const struct overlap_item *item, int items, struct overlap_rule *best);

#endif
