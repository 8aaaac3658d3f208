/* rings.h -- inference with the experts of some layers of a mixture on each device, the others in host memory.  A
 * ring of K layers has room for the experts of K layers on the device, which later layers take in turn.
 * cli/bench/offload.c calls these functions. */
#ifndef ORRERY_BENCH_RINGS_H
#define ORRERY_BENCH_RINGS_H

#include "emulated_devices/device/cluster.h"

struct comm;

/* The runs: all experts are there; rings of RING_FIRST layers, and of more; the chosen experts alone. */
enum { RING_LAYERS = 8, RING_PASSES = 4, RING_FIRST = 3, RINGS = 3, RING_RUNS = RINGS + 2 };

/** One run: bytes of weights on the device at most, bytes read in all passes and in how many reads, virtual us. */
struct ring_run { uint64_t weights, read, reads; double us; };

/** Infer with each.  Collective over all devices.
 *  @return OK; ERR_CHECK if a formula of memory or reads does not hold; an error of a run. */
enum error_code rings_measure(struct comm *, const struct cluster *, struct ring_run run[RING_RUNS], struct error *);

/** Bytes of the experts of a layer. */
double ring_expert_bytes(void);

#endif
