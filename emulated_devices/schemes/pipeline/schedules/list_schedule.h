/* list_schedule.h -- list scheduling: each device always does the first ready action by a fixed rule.  chimera.c and
 * skippipe.c call this function.  Errors: ERR_MEMORY. */
#ifndef ORRERY_PIPELINE_LIST_SCHEDULE_H
#define ORRERY_PIPELINE_LIST_SCHEDULE_H

#include "emulated_devices/schemes/pipeline/schedules/generate.h"

/**
 * Fill in forwards and whole backwards of a schedule with stages and routes, by list scheduling.  A free device does
 * the action that can start first; of several, a forward before a backward (other devices need its result, and the
 * limit bounds its memory); of several, the lowest microbatch.  In each chunk microbatches keep their order.  A forward
 * is possible only while the chunk holds fewer microbatches than its limit.
 * @param limit  [devices * chunks] microbatches at once, at least 1.  Then a plan always exists, because nothing blocks
 *               the first unfinished microbatch.
 */
enum error_code list_schedule(struct schedule *, const struct schedule_request *, const int *limit, struct error *);

#endif
