/* ring.h -- `orrery bench offload`: inference with the experts of K parts of a mixture on each device. */
#ifndef ORRERY_BENCH_RING_H
#define ORRERY_BENCH_RING_H

#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/cluster.h"

/** Infer with all experts on each device, with rings of them, and with those that are chosen; print memory, reads and
 *  virtual time beside their formulas and beside what the paper says.  Collective over all devices.
 *  @return OK; ERR_CHECK if a formula does not hold; an error of a run. */
enum error_code bench_rings(struct comm *, const struct cluster *, struct error *);

#endif
