/* timeline.h -- draws the pipeline of a run from the times of its devices' actions.
 *
 * Callers: run/session.c and run/plan.c after a run or a prediction, cli/show/schedule.c for a schedule
 * alone.
 */
#ifndef ORRERY_DRAW_TIMELINE_H
#define ORRERY_DRAW_TIMELINE_H

#include "emulated_devices/model/trainer.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <stdio.h>

/**
 * Draw the last step's pipeline, of the first copy of the model and the first part of each layer, in virtual time: to
 * `out` for a terminal, with its bubble, memory and messages, and to an SVG file.
 * Collective over all devices; rank 0 writes.
 * @return OK, or the same error on every device: ERR_FILE, ERR_MEMORY, ERR_COMM.
 */
enum error_code timeline_write(struct trainer *, const char *path, FILE *out, struct error *);

/* Shared with `orrery show schedule`. */

/** Print memory, messages and order of additions of a schedule, a line each. */
void timeline_say_rest(FILE *to, const struct schedule *);

/** Write the schedule as SVG, or as text if timing is NULL.  It is made in memory and written as a whole.
 *  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code timeline_to_file(const char *path, const struct schedule *, const struct timing *, bool picoseconds,
                                 struct error *);

#endif
