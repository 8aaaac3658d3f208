/* zero_bubble.h -- the common shape of ZB-H1 and ZB-H2.
 *
 * zb_h1.c and zb_h2.c call put_zero_bubble for each device; both differ only in `ahead` and `behind`.  No function
 * returns an error code.
 */
#ifndef ORRERY_PIPELINE_ZERO_BUBBLE_H
#define ORRERY_PIPELINE_ZERO_BUBBLE_H

#include "emulated_devices/schemes/pipeline/schedules/generate.h"

/* `ahead` forwards, then F, I and W in turn, W delayed by `behind` microbatches. */
static inline void put_zero_bubble(struct schedule *schedule, int r, int ahead, int behind)
{
    /* The warm-up has at most M forwards. */
    const int M = schedule->micros, first = ahead < M ? ahead : M;
    for (int m = 0; m < first; m++) schedule_put(schedule, r, FORWARD, m, 0);
    for (int m = 0; m < M; m++) {
        schedule_put(schedule, r, FORWARD, m + first, 0);
        schedule_put(schedule, r, BACKWARD_INPUT, m, 0);
        if (m >= behind) schedule_put(schedule, r, BACKWARD_WEIGHT, m - behind, 0);
    }
    /* The last weight gradients were put off and come at the end. */
    for (int m = M > behind ? M - behind : 0; m < M; m++) schedule_put(schedule, r, BACKWARD_WEIGHT, m, 0);
}

#endif
