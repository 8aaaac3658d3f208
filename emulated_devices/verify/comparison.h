/* comparison.h -- errors beside their bounds: what holds, the worst of each kind, and the first that does not hold, on
 * all devices that have it.
 *
 * Serial; knows neither models nor devices.  Called by compare.h, which does.
 */
#ifndef ORRERY_COMPARISON_H
#define ORRERY_COMPARISON_H

#include "emulated_devices/plan/plan.h"
#include "emulated_devices/verify/sums.h"

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
    char before[PARAM_NAME + 32];       /* what was compared just before it and held; empty: nothing */
    bool number;                        /* it is a single number: the loss, the norm */
    bool excess;                     /* it is a quantised gradient: its error is a multiple of what quantising allows */
    char from[160];                     /* the operation that computes it, in words; empty: not an activation */
    struct spread current;              /* the tensor whose devices are being compared */
    bool diverged; /* the one-device run itself has come to infinities or NaNs: nothing is compared any more, but that
                                           loss and norm must not be finite either where its are not */
    struct spread divergence;           /* ... first in this tensor; before it all was compared as ever */
    bool passing;                 /* ... in a step that loss scaling skips: if the next one is finite, it was nothing */
    int64_t compared;                   /* tensors, over all devices and steps */
    int64_t wrong;                      /* of them did not hold */
};

/** Begin a step.  @param skipped  the truth overflows, and loss scaling will leave the step out. */
void comparison_step(struct comparison *, bool skipped);

/**
 * Hold one tensor on one device to its bound.  Devices come tensor by tensor, tensors in order of execution.
 * @param of     where the worst of this kind is kept, in the comparison.
 * @param found  tensor, rank, step and bound are given; the rest is filled in here.
 * @param size   norm of the whole truth.
 */
void comparison_tensor(struct comparison *, struct worst *of, const char *kind, struct worst found, const struct sums *,
                       double size);

/** The same of one number for the whole model, the same on every device.  @param bound  absolute. */
void comparison_number(struct comparison *, struct worst *of, const char *name, double actual, double truth,
                       double bound, int64_t step);

/** The same of a quantised gradient.  @param excess  of each element, how far it is from the exact
 * sum, in units of what that may be. */
void comparison_excess(struct comparison *, struct worst found, struct tensor excess);

/** What a tensor is called in a sentence: "gradient h.0.ln_1.bias", "loss".  @return out. */
const char *spread_name(char *out, size_t size, const struct spread *);

/** The kinds of tensors by name, for reports: each with its worst.  @return NULL after the last. */
const struct worst *comparison_kind(const struct comparison *, int i, const char **name);

/** The largest error/bound of all kinds; NaN if one was NaN. */
double comparison_ratio(const struct comparison *);

/**
 * The first failure in one line: tensor, device, error and bound, which devices along which axes, and the factor if it
 * is constant.
 * @return out.
 */
const char *comparison_describe(char *out, size_t size, const struct comparison *, const struct plan *);

#endif
