/* zb_search.h -- zero-bubble schedules found by search, for given times and a given memory limit.
 *
 * zb_1p.c and zb_2p.c call this search with limits of P and 2P microbatches.  The only error is ERR_MEMORY; then the
 * caller frees the schedule.
 */
#ifndef ORRERY_PIPELINE_ZB_SEARCH_H
#define ORRERY_PIPELINE_ZB_SEARCH_H

#include "emulated_devices/schemes/pipeline/schedules/generate.h"

/** Fill in F, I and W of every device, holding at most `limit` microbatches' activations on each.
 *  Times are the request's; all zero means 1, 1, 1, 0.  The schedule must have been begun, with one chunk per
 *  device. */
enum error_code zero_bubble_search(struct schedule *, const struct schedule_request *, int limit, struct error *);

#endif
