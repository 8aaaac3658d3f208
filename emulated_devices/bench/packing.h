/* packing.h -- how strided bytes are best sent: this machine's packing, measured, beside a cluster's links.
 * cli/bench/packing.c calls. */
#ifndef ORRERY_BENCH_PACKING_H
#define ORRERY_BENCH_PACKING_H

#include "emulated_devices/device/cluster.h"
#include "emulated_devices/device/strided.h"

/** Measure packing runs of each length, and take a link's times.  @return OK or ERR_MEMORY. */
enum error_code packing_measure(struct strided_rates *, const struct link *, struct error *);

/** How long packing takes in fact, in nanoseconds.  @return OK or ERR_MEMORY. */
enum error_code packing_time(const struct strided *, double *nanoseconds, struct error *);

#endif
