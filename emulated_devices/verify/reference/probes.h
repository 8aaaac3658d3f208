/* probes.h -- compares every activation of every device, and its gradient, with the one-device model's, on the device
 * and as soon as it is computed.
 *
 * Before a step rank 0 sends each device its parts of the recorded tensors (as CONTROL traffic, which is not counted,
 * in host memory).  During the step each device compares what it computes, then frees the part.  After the step the
 * sums are sent to rank 0.  With `isolate`, each computed tensor is then replaced by the truth, so that an error does
 * not cause more errors in later tensors.
 *
 * run/session.c, run/golden.c and verify/cases/case.c open probes; compare.c uses them for watch.c.  verify/dump/
 * gathers tensors for run/golden.c.  probes_deliver returns ERR_MEMORY on every device if one has no room for its
 * lists.  Elsewhere missing memory or a failed message ends all devices.
 */
#ifndef ORRERY_PROBES_H
#define ORRERY_PROBES_H

#include "emulated_devices/model/trainer.h"
#include "emulated_devices/verify/reference/record.h"
#include "emulated_devices/check/report/sums.h"
#include <string.h>

/* This describes a tensor that a device compares. */
struct expected {
    char name[32];                      /* as the observer gets it: "attn.qkv" */
    int layer;                          /* -1 before the blocks, L after */
    bool gradient;                      /* the tensor is a gradient */
    int64_t cols;                       /* of the whole tensor */
    enum activation_width width;        /* the meaning of the columns */
    enum dtype format;                  /* in which devices hold it */
    bool sums;                          /* the truth has the exact sums, too, from which it was rounded */
};

/* Whether a dump has it.  only: the one name whose activations are dumped; NULL: all, and all their gradients. */
static inline bool expected_is_dumped(const struct expected *expected, const char *only)
{
    return only == NULL || (!expected->gradient && strcmp(expected->name, only) == 0);
}

/* Rows of a mixture's experts that this device has computed in a microbatch: choices of tokens, by expert. */
struct kept_rows {
    char name[32];                      /* of sorted_by_expert */
    int layer, micro;
    bool gradient;                      /**< The rows are of a gradient. */
    struct tensor t;                    /* [rows, columns] in the host's memory */
    int32_t *expert, *row;              /* [rows] of each row; where in the batch its token is */
    struct interval columns;            /* of F, or of the results */
    int devices, *device;               /* [devices] whose results add up; 0: these are whole */
};

struct probes {
    struct trainer *trainer;            /* whose tensors are compared */
    struct probe probe;                 /* what the trainer calls */
    bool isolate;                       /* after its comparison a tensor is replaced by the truth */
    int count;                          /* tensors of a step */
    int routers;                        /* layers whose choices of experts are kept, after the tensors; 0: no mixture */
    struct expected *expected;          /* [count + routers] */
    struct sums *sums;                  /* [count] this device's; rank 0 receives the others' in this memory, too */
    void **part;                        /* [(count + routers) * micros] the truth's parts, until they are compared */
    void **unrounded;                   /* [count * micros] the same parts of the sums before they were rounded */
    bool keep;                          /* also keep the computed tensors, for probes_gather; always with routers */
    void **shown;                       /* [(count + routers) * micros] the computed tensors */
    void **copied;                      /* [(count + routers) * micros] their columns of copied keys and values, if they
                                         * are gradients: this device's summands; NULL: there are none */
    struct kept_rows *sorted;           /* [sorted_count] with probe.sorted: rows of experts */
    int sorted_count, sorted_room;      /* so far, and for how many there is memory; -1: there was none */
};

/** Watch a trainer.  Collective over all devices.  The trainer must not be closed before the probes. */
void probes_open(struct probes *, struct trainer *, bool isolate);
void probes_close(struct probes *);

/** Send every device its parts of the truth.  Collective over all devices.  @param record  read on rank 0 only.
 *  @return OK or the same error on every device. */
enum error_code probes_deliver(struct probes *, const struct recording *record, struct error *);

/** Gather the experts to which the devices' tokens went in this step, on rank 0.  Collective.
 *  @param experts  on rank 0: I32 [L,N,k]; not used elsewhere. */
void probes_gather_routes(struct probes *, int32_t *experts);

/** Gather the same on all devices.  Collective.  @return experts, for free; NULL on every device without memory. */
int32_t *probes_share_routes(struct probes *);

/** After the step: compare what was computed with another truth, instead of the delivered one.  Collective.
 *  @param record  read on rank 0 only; NULL: the delivered truth stays. */
void probes_compare_again(struct probes *, const struct recording *record);

/** The first device that computes a token's choice of experts in a layer.  Local.  @param row  of the batch. */
int probes_device_of(const struct probes *, int layer, int64_t row);

/**
 * Send all sums to rank 0, tensor by tensor in order of execution, and for each tensor device by device.
 * Collective over all devices.
 * @param visit  called on rank 0 only, for devices whose part is not empty.
 */
enum error_code probes_collect(struct probes *, bool gradients,
                               void (*visit)(void *context, int tensor, int rank, const struct sums *), void *context,
                               struct error *);

/**
 * Assemble on rank 0 a tensor that the devices computed in this step; of several copies, the last rank's is used.
 * Collective over all devices; `keep` must have been set before the step.
 * @param whole  on rank 0: the tensor to fill, in the devices' number format; not used elsewhere.
 */
void probes_gather(struct probes *, int tensor, struct tensor whole);

/** The part that this device computed of a tensor in a microbatch of this step.  Local; `keep` as for probes_gather.
 *  @param[out] part  its part, for part_free.  @return its numbers; NULL if this device does not compute it. */
const void *probes_own(const struct probes *, int tensor, int micro, struct part *part);

/** This device's summand of a gradient of keys and values of which several devices have copies.  Local, as probes_own.
 *  @return its numbers; NULL if there is none, and then there is no part to free. */
const void *probes_own_copied(const struct probes *, int tensor, int micro, struct part *part);

/** Whether any device has such summands of a tensor.  Local. */
bool probes_have_copied(const struct probes *, int tensor);

/** Add all devices' summands to the gradient that probes_gather has assembled.  Collective over all devices.
 *  @param whole  on rank 0, in any format, zero where summands are; not used elsewhere. */
void probes_add_copied(struct probes *, int tensor, struct tensor whole);

#endif
