/* compare.h -- every device's activations, gradients, loss, weights and optimizer state against the one-device run, each
 * beside its bound, in order of execution.
 */
#ifndef ORRERY_COMPARE_H
#define ORRERY_COMPARE_H

#include "emulated_devices/model/collect.h"
#include "emulated_devices/verify/diagnose.h"
#include "emulated_devices/verify/probes.h"
#include "emulated_devices/verify/reference.h"

/* The worst of its kind so far: error and bound are relative, norm over norm of the whole tensor. */
struct worst {
    double ratio;                       /* error / bound; above 1, or NaN, the comparison does not hold */
    double error, bound;
    struct scale scale;                 /* the device's numbers as a multiple of the truth's */
    double truth;                       /* squared norm of its part of the truth */
    char tensor[PARAM_NAME];
    int rank;                           /* the device that has it */
    int64_t step;
};

/* One tensor on all devices that have it. */
struct spread {
    char kind[24], tensor[PARAM_NAME];
    int64_t step;
    struct evidence on;
};

struct comparison {
    struct worst loss, activation, activation_gradient, gradient, quantised, norm, weight, state;
    double largest_error;               /* of any tensor, whatever its bound */
    bool failed;
    struct worst first;                 /* the first that did not hold, in order of execution: its worst device */
    char first_kind[24];
    struct spread where;                /* the same one, on all devices */
    char before[PARAM_NAME + 32];                   /* what was compared just before it and held; empty: nothing */
    bool number;                        /* it is a single number: the loss, the norm */
    bool excess;                        /* it is a quantised gradient: its error is a multiple of what quantising allows */
    char from[160];                     /* the operation that computes it, in words; empty: not an activation */
    struct spread current;              /* the tensor whose devices are being compared */
    bool diverged;                      /* the one-device run itself has come to infinities or NaNs: nothing is compared any more, but that
                                           loss and norm must not be finite either where its are not */
    struct spread divergence;           /* ... first in this tensor; before it all was compared as ever */
    bool passing;                       /* ... in a step that loss scaling skips: if the next one is finite, it was nothing */
    int64_t compared;                   /* tensors, over all devices and steps */
    int64_t wrong;                      /* of them did not hold */
};

/** What a tensor is called in a sentence: "gradient h.0.ln_1.bias", "loss".  @return out. */
const char *spread_name(char *out, size_t size, const struct spread *);

/** The kinds of tensors by name, for reports: each with its worst.  @return NULL after the last. */
const struct worst *comparison_kind(const struct comparison *, int i, const char **name);

/**
 * Before a step: rank 0 runs the reference, and every device gets its parts of the activations.
 * Collective.  `ref` is read on rank 0 only, here and below.
 */
enum error_code compare_begin(struct probes *, struct reference *ref, struct error *);

/**
 * Compare loss, activations and gradients / weights and optimizer state, on all devices that hold a piece.
 * Collective; the result is on rank 0.
 */
enum error_code compare_gradients(struct probes *, struct reference *ref, const struct step_result *, struct comparison *, struct error *);
enum error_code compare_weights(struct trainer *, struct reference *ref, struct comparison *, struct error *);

/**
 * The first failure in one line: tensor, device, error and bound, which devices along which axes, and the factor if it is constant.
 * @return out.
 */
const char *comparison_describe(char *out, size_t size, const struct comparison *, const struct plan *);

#endif
