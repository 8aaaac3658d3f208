/* packing.h -- how long strided bytes are packed: by this machine, measured; by a device of a cluster, all at once or
 * run by run.  cli/bench/packing.c calls. */
#ifndef ORRERY_BENCH_PACKING_H
#define ORRERY_BENCH_PACKING_H

#include "emulated_devices/device/strided_way.h"

/** How long packing takes here, in nanoseconds: the best of some rounds.  @return OK or ERR_MEMORY. */
enum error_code packing_time(const struct strided *, double *nanoseconds, struct error *);

/** The time of one kernel of the cluster's device that packs all. */
picoseconds packing_kernel(const struct strided_road *, const struct strided *);

/** The time of copying run by run, each by a kernel of its own, as MPI libraries did with memory of GPUs. */
picoseconds packing_by_copies(const struct strided_road *, const struct strided *);

#endif
