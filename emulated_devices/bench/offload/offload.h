/* offload.h -- weights and states in host memory: loading them, and stepping them there and on the device.
 * claims/offload.c and cli/bench/offload.c call these functions. */
#ifndef ORRERY_BENCH_OFFLOAD_H
#define ORRERY_BENCH_OFFLOAD_H

#include "emulated_devices/device/cluster.h"

struct comm;

/** Virtual time until all is read from the hosts, and until all devices have all weights. */
struct offload_loaded { picoseconds read, all; };

/**
 * Load weights on the first P devices: each reads 1/P and they gather, or one owner reads all and broadcasts.
 * Collective over all devices.
 * @param[out] loaded  the slowest device's.  @return OK, ERR_MEMORY or ERR_COMM.
 */
enum error_code offload_load(struct comm *world, int P, int megabytes, bool by_owner, struct offload_loaded *loaded,
                             struct error *);

enum { OFFLOAD_HOST_ALONE = 1000000 };  /* a stride: the device steps no slice */

/**
 * Update offloaded states of a small model: every stride-th slice is read, stepped by the device and written back; the
 * host steps the others.  Local.
 * @param slice  elements of a slice.  @param[out] slices  how many there are.  @return OK, ERR_MEMORY.
 */
enum error_code offload_update(struct comm *alone, int slice, int stride, picoseconds *took, int *slices,
                               struct error *);

/** The stride at which host and device need equally long, by the formula for one slice (schemes/data/data.h). */
int offload_balanced_stride(picoseconds by_host, picoseconds moved);

/** Elements of that model. */
int64_t offload_elements(void);

#endif
