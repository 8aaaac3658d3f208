/* reference.h -- the one-device run beside a plan, and a disturbed twin of it that says what rounding may do.
 *
 * Serial; lives on the device that compares (rank 0).  Both go their own way from the same initial weights: nothing is
 * copied from the devices, unless they themselves started from files.
 */
#ifndef ORRERY_REFERENCE_H
#define ORRERY_REFERENCE_H

#include "emulated_devices/model/collect.h"
#include "ref/model/perturb.h"

/* One serial model in training. */
struct serial_run {
    struct gpt2 model;
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] */
    double loss, norm;
};

struct reference {
    const struct plan *plan;
    struct batch_source source;
    struct serial_run truth, twin;
    struct perturbation perturbation;
    int32_t *ids, *labels;              /* [B*S] */
    int64_t step;
};

/** @return OK, or ERR_MEMORY with nothing to close. */
enum error_code reference_open(struct reference *, const struct plan *, struct batch_source, struct error *);
void reference_close(struct reference *);

/**
 * Start both where the devices are now: weights, optimizer state and step, after these were read from a checkpoint.
 * Collective over all devices; the reference is on rank 0 and not read elsewhere.
 */
enum error_code reference_follow(struct reference *, struct trainer *, struct error *);

/** Loss, gradients and norm of the next batch, for both. */
enum error_code reference_gradients(struct reference *, struct error *);

/** Step both, and zero their gradients. */
void reference_update(struct reference *);

/** The bound for the loss: the mean over tokens of how far the twin's losses are from the truth's, and the rounding of the
 *  mean itself.  (The difference of the two means alone could be small by chance.) */
double reference_loss_bound(const struct reference *);

/** Norm of twin - truth over norm of truth, for two tensors of one shape.  0/0 is 0. */
double relative_difference(struct tensor a, struct tensor b);

#endif
