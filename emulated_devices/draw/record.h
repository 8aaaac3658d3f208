/* record.h -- what happened on a device, as rows of numbers that travel to rank 0;
 * for the drawings of `orrery show`. */
#ifndef ORRERY_DRAW_RECORD_H
#define ORRERY_DRAW_RECORD_H

#include "emulated_devices/comm/comm.h"

/* Events one after another, each: what it is (from whom a message came, or a negative number), its time, how many
 * symbols, the symbols.  failed: there was no memory for one of them. */
struct record { int64_t *number; int64_t used, room; bool failed; };

/** Begin an event; record_number, count times, follows. */
void record_event(struct record *, int what, picoseconds time, int64_t count);
void record_number(struct record *, int64_t);

/** Bring every device's record to rank 0.  Collective; takes no virtual time.
 *  @param mine  on rank 0 it is emptied.  @param[out] all  rank 0: one a device, to be freed. */
enum error_code record_bring(struct comm *, struct record *mine, struct record *all, struct error *);

#endif
