/* steal.h -- other processes that keep cores busy, as a neighbour on the machine would.  step_measure.c calls these
 * functions. */
#ifndef ORRERY_BENCH_STEAL_H
#define ORRERY_BENCH_STEAL_H

#include "ref/error.h"

enum { STEAL_MOST = 64 };
/* Processes that keep cores busy, so that devices share them. */
struct thieves { int count, process[STEAL_MOST]; };

/** Start one busy process on each of the last `cores` cores, at most STEAL_MOST; they end with this process.
 *  @return OK, for steal_end; ERR_USAGE if there are not so many cores, or one cannot be had: no process is left. */
enum error_code steal_cores(struct thieves *, int cores, struct error *);

/** End them; works without steal_cores on zeros. */
void steal_end(struct thieves *);

#endif
