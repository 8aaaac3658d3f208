/* probes.h -- every activation of every device, and its gradient, held to the one-device model's, where and when it is
 * computed.
 *
 * Before a step rank 0 sends each device its parts of the recorded tensors (CONTROL traffic, which is not counted, in
 * memory that is not the device's); during the step each device compares what it computes, and forgets the part; after
 * the step the sums go to rank 0.  An isolating comparison then also replaces what was computed by the truth, so that a
 * mistake does not blame what comes after it.
 */
#ifndef ORRERY_PROBES_H
#define ORRERY_PROBES_H

#include "emulated_devices/model/trainer.h"
#include "emulated_devices/verify/record.h"
#include "emulated_devices/verify/sums.h"

/* What a device knows of a tensor that it is to compare. */
struct expected {
    char name[32];
    int layer;
    bool gradient;
    int64_t cols;
    enum activation_width width;        /* which columns those are */
    enum dtype format;
};

struct probes {
    struct trainer *trainer;
    struct probe probe;
    bool isolate;
    int count;                          /* tensors of a step */
    struct expected *expected;          /* [count] */
    struct sums *sums;                  /* [count] this device's; rank 0 receives the others' in the same place */
    void **part;                        /* [count * micros] truth's parts, until they have been compared */
    bool keep;                          /* what is shown as well, for probes_gather */
    void **shown;                       /* [count * micros] */
};

/** Look on.  Collective.  The trainer must not be closed before. */
void probes_open(struct probes *, struct trainer *, bool isolate);
void probes_close(struct probes *);

/** Give every device its parts of the truth.  Collective.  @param record  read on rank 0 only.
 *  @return OK or the same error on every device. */
enum error_code probes_deliver(struct probes *, const struct recording *record, struct error *);

/**
 * Show rank 0 what was found, tensor by tensor in order of execution, and for each device by device.
 * Collective.
 * @param visit  called on rank 0 only, for devices whose part is not empty.
 */
enum error_code probes_collect(struct probes *, bool gradients,
                               void (*visit)(void *context, int tensor, int rank, const struct sums *), void *context,
                               struct error *);

/**
 * Put together on rank 0 what all devices have shown of a tensor in this step; of several copies that of the last rank
 * stays.  Collective; only where `keep` was set before the step.
 * @param whole  on rank 0 room for the tensor, of the devices' number format; unread elsewhere.
 */
enum error_code probes_gather(struct probes *, int tensor, struct tensor whole, struct error *);

#endif
