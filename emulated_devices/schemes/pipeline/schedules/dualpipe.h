/* dualpipe.h -- the eight steps that DualPipe and DualPipeV share.
 *
 * dualpipe.c (two pipelines that meet) and dualpipev.c (one pipeline that turns) call dualpipe_steps for each device.
 * The only error is ERR_MEMORY.
 */
#ifndef ORRERY_PIPELINE_DUALPIPE_H
#define ORRERY_PIPELINE_DUALPIPE_H

#include "emulated_devices/schemes/pipeline/schedules/generate.h"

/* A dual is a device's list under construction.  Streams 0 and 1 are the two directions of microbatches. */
struct dual {
    struct schedule *s;                 /* to which the actions are added */
    int device;                         /* whose list this is */
    int chunk[2];                       /* of stream 0, of stream 1 */
    int first[2], stride;               /* the nth microbatch of a stream is first + n * stride */
    int forwards[2], backwards[2];      /* done so far */
    bool pairs;                         /* mark the passes that are side by side */
    int *waiting, waits, waited;        /* queue of delayed weight gradients, as microbatch * 2 + stream */
};

/** Put the eight steps into a device's list.  half: its distance from the nearer end of the pipeline; depth: devices
 *  between an end and the turn; each stream has n microbatches, n >= 2 * depth. */
enum error_code dualpipe_steps(struct dual *, int half, int depth, int n, struct error *);

#endif
