/* record.h -- the events on a device, as rows of numbers that are sent to rank 0, for the drawings of `orrery show`.
 *
 * The drawings of attention, collectives, dispatch and tensors record with it.  attention_symbols.c,
 * collective_show.c, dispatch.c and tensor_symbols.c call these functions.
 */
#ifndef ORRERY_DRAW_RECORD_H
#define ORRERY_DRAW_RECORD_H

#include "emulated_devices/comm/comm.h"

/* Events one after another, each: its kind (the sender of a message, or a negative number), its time, the number of
 * symbols, the symbols.  failed: there was no memory for one of them. */
struct record { int64_t *number; int64_t used, room; bool failed; };

/** Begin an event; then call record_number count times. */
void record_event(struct record *, int what, picoseconds time, int64_t count);
void record_number(struct record *, int64_t);

/** Collect every device's record on rank 0.  Collective; takes no virtual time.
 *  @param mine  on rank 0 it is emptied.  @param[out] all  rank 0: one per device; the caller frees them. */
enum error_code record_bring(struct comm *, struct record *mine, struct record *all, struct error *);

/** Whether all of what happened was recorded.  @return OK or ERR_MEMORY. */
enum error_code record_check(const struct record *, struct error *);

/** Whether a job has as many devices as were asked for: a launcher may have started others.
 *  @return OK or ERR_USAGE. */
enum error_code record_check_devices(const struct comm *, int devices, struct error *);

/** Free the numbers of every device's record. */
void records_free(struct record *all, int devices);

#endif
