/* gather.h -- texts that devices have made, one of each, brought to rank 0 one at a time.
 *
 * Callers: simulators.c, trace_file.c, draw/profile.c.
 */
#ifndef ORRERY_DRAW_GATHER_H
#define ORRERY_DRAW_GATHER_H

#include "emulated_devices/comm/comm.h"

/* A device has a text and a mark of the caller's: whether something is missing. */
struct gathered { char *text; uint64_t length; bool full; };

typedef enum error_code gather_fn(void *context, int rank, const struct gathered *, struct error *);

/**
 * Show every device's text to rank 0, in order of ranks.
 * Collective over all devices; counted as CONTROL.
 * @param own    this device's text.
 * @param visit  called on rank 0 alone; its error ends the gathering everywhere.
 * @return OK, or the same error on every device.
 */
enum error_code gather_texts(struct comm *, const struct gathered *own, gather_fn *visit, void *context,
                             struct error *);

#endif
