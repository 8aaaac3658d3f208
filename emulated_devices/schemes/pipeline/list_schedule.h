/* list_schedule.h -- plan by a rule instead of by hand: each device does, of what is ready, what comes first. */
#ifndef ORRERY_PIPELINE_LIST_SCHEDULE_H
#define ORRERY_PIPELINE_LIST_SCHEDULE_H

#include "emulated_devices/schemes/pipeline/generate.h"

/**
 * Fill in forwards and whole backwards of a schedule with stages and routes, by list scheduling: time passes; a device
 * that is free does the action that can start first, of those a forward before a backward (others wait for it, and the
 * limit holds it back), of those the lowest microbatch.  In each chunk microbatches keep their order.  A forward may be
 * done only while the chunk holds fewer than its limit.
 * @param limit  [devices * chunks] microbatches at once, at least 1.  With that a plan always exists: the first
 *     microbatch
 *               that is not finished has nothing before it.
 */
enum error_code list_schedule(struct schedule *, const struct schedule_request *, const int *limit, struct error *);

#endif
