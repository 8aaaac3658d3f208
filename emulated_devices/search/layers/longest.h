/* longest.h -- stages by the longest one alone, whatever a stage's time is.
 *
 * Callers: pipedream.c and piper.c of this folder.  The function is local.
 */
#ifndef ORRERY_SEARCH_LONGEST_H
#define ORRERY_SEARCH_LONGEST_H

#include "emulated_devices/search/layers/layers.h"

/* How long a stage takes: the layers from..to-1 on devices of full speed, and the strategies of that time. */
struct stage_rule {
    void *context;                      /* first argument of both */
    /* Find the least time; -1: nothing fits, and no longer run does.  size: the place of the number of devices in the
     * table. */
    enum error_code (*least)(void *context, int from, int to, int size, int flight, picoseconds *time, struct error *);
    /* Write the strategies with that time. */
    enum error_code (*trace)(void *context, int from, int to, int size, int flight, int strategy[], struct error *);
};

/** Offer for each number of stages the plan whose longest stage is shortest.  @return OK, also if nothing fits;
 *  ERR_MEMORY, or what the rule returns. */
enum error_code longest_solve(struct layer_search *, const struct stage_rule *, struct error *);

#endif
