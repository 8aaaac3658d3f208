/* dispatch.h -- counts what the expert schemes send for one layer with an even load, forward and backward, on nodes.
 * cli/bench/schemes/dispatch.c calls these functions. */
#ifndef ORRERY_BENCH_DISPATCH_H
#define ORRERY_BENCH_DISPATCH_H

#include "emulated_devices/bench/schemes/dispatch_load.h"
#include <stdbool.h>

enum { DISPATCH_MOST_DEVICES = 32, DISPATCH_MOST_ROWS = 64 };

/* These numbers are of each device; a row has the largest over the devices. */
enum {
    DISPATCH_TIME, DISPATCH_MESSAGES, DISPATCH_BYTES, DISPATCH_BETWEEN, DISPATCH_ROWS, DISPATCH_WRONG, DISPATCH_COUNTS
};
extern const char *const dispatch_count_names[DISPATCH_COUNTS];         /* in the JSON */

/* A layer: devices, those of a node; experts, choices of a token, tokens of a device; widths of a row and an expert. */
struct dispatch_shape { int devices, node, experts, choices, tokens, width, inner; };

/* between: bytes between nodes of all devices. */
struct dispatch_row { const char *scheme; int ep, etp; double count[DISPATCH_COUNTS], between; };

/* Rows that a device sends to others if so many of 100 choices are local. */
struct dispatch_activation { int local; double sent; };
enum { DISPATCH_ACTIVATIONS = 3 };

struct dispatch_counted {
    const struct dispatch_shape *shape; /* that was counted */
    struct dispatch_row row[DISPATCH_MOST_ROWS];
    int rows;
    struct dispatch_activation activation[DISPATCH_ACTIVATIONS];
    struct load_row load[LOAD_ROWS];
};

/** Count every scheme, along etp too, and an uneven load.  Collective over all devices.
 *  @param[out] counted  complete on rank 0.  @return OK; ERR_USAGE: another number of devices; ERR_MEMORY, ERR_COMM. */
enum error_code dispatch_measure(struct comm *world, const struct dispatch_shape *, struct dispatch_counted *counted,
                                 struct error *);

/** The row of a scheme; NULL: it was not counted. */
const struct dispatch_row *dispatch_row_of(const struct dispatch_counted *, const char *scheme, int etp);

/** These are, for one of the four exchanges of rows, its messages; and its bytes, as a part of all rows that a
 * device has. */
double dispatch_messages(const struct dispatch_row *);
double dispatch_part(const struct dispatch_counted *, const struct dispatch_row *);

/** Rows that cross to other nodes, of all devices: a row a choice, or once to each node with experts of it. */
double dispatch_rows_crossing(const struct dispatch_shape *, bool once);

/** The same, counted: bytes between nodes, but those that the last device of each node tells the next one. */
double dispatch_rows_counted(const struct dispatch_shape *, const struct dispatch_row *, bool once);

#endif
