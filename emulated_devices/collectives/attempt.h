/* attempt.h -- one collective call without numbers: its time by the clocks, and with the links that devices share.
 *
 * cli/show/cluster_pairs.c calls this function; auto.c and segments.c choose by attempt_time of collective.h.
 */
#ifndef ORRERY_ATTEMPT_H
#define ORRERY_ATTEMPT_H

#include "emulated_devices/collectives/collective.h"

/**
 * Run a call on the first P devices of a cluster, which start together; an allreduce in place.
 * @param collective  with the nodes of the group, and the segment of a pipelined algorithm; in and out are not read.
 * @param[out] clock  when the last device is done, by its own clock.
 * @param[out] replayed  the same in one order of time (contention.h), with the links that devices share.
 * @return OK; ERR_MEMORY; ERR_FORMAT as of contention_replay.
 */
enum error_code attempt_times(const struct algorithm *, int P, const struct collective *collective,
                              const struct cluster *, picoseconds *clock, picoseconds *replayed, struct error *);

#endif
