/* dualpipe.h -- the eight steps that DualPipe and DualPipeV share. */
#ifndef ORRERY_PIPELINE_DUALPIPE_H
#define ORRERY_PIPELINE_DUALPIPE_H

#include "emulated_devices/schemes/pipeline/generate.h"

/* One device's list in the making.  Its two streams, 0 and 1, are the two directions in which microbatches come by. */
struct dual {
    struct schedule *s;
    int device;
    int chunk[2];                       /* of stream 0, of stream 1 */
    int first[2], stride;               /* the n-th microbatch of a stream is first + n * stride */
    int forwards[2], backwards[2];      /* done so far */
    int *waiting, waits, waited;     /* weight gradients put off, as microbatch * 2 + stream, first come first served */
};

/** The eight steps, for the device at distance `half` from the nearer end of `depth` devices between an end and the
 *  turn; each stream has n microbatches, n >= 2 * depth. */
enum error_code dualpipe_steps(struct dual *, int half, int depth, int n, struct error *);

#endif
