/* spatial.h -- checks an operation on tiles of the sphere (schemes/spatial): beside ref/sphere, and what it sends.
 * verify/jobs/spatial.c (`orrery verify spatial`) and tests/devices/test_spatial.c call verify_tiling. */
#ifndef ORRERY_VERIFY_SPATIAL_H
#define ORRERY_VERIFY_SPATIAL_H

#include "emulated_devices/schemes/spatial/spatial.h"

/* A trial finds these; the verdict is the same on every device. */
struct spatial_outcome {
    int calls;                          /* of the operation, and of its backward pass */
    uint64_t bytes;                     /* that this device has sent in them */
    double error;                       /* the largest of this device, over the largest number of the globe */
    struct error verdict;               /* OK, or ERR_CHECK: the first wrong tile, or wrong volume */
};

/**
 * Run one operation, forward and backward, on tiles of a 13 x 22 grid, with more and with fewer fields than devices.
 *
 * Every device computes the whole globe as well, with ref/sphere.  What only moves must have the same bits, what sums
 * in another order is within 1e-12.  What is sent must equal what the library foresees, what it enters call by call,
 * and a formula that is written here.
 * Collective over all devices of the tiling, which are all devices of the job.
 * @return OK when there is an outcome, with any verdict; ERR_MEMORY, ERR_COMM on every device.
 */
enum error_code verify_tiling(struct tiling *, const struct spatial_scheme *, struct spatial_outcome *, struct error *);

#endif
