/* comparison.h -- compares errors with their bounds: the worst of each kind, and the first failure on all devices that
 * have the tensor.
 *
 * Serial; independent of models and devices.  compare.h calls it.
 */
#ifndef ORRERY_COMPARISON_H
#define ORRERY_COMPARISON_H

#include "emulated_devices/plan/plan.h"
#include "emulated_devices/verify/judgement.h"
#include "emulated_devices/check/report/sums.h"

/* The worst of its kind so far: error and bound are relative, norm over norm of the whole tensor; if that is zero,
 * norms themselves. */
struct worst {
    double ratio;                       /* error / bound; above 1, or NaN, the comparison fails */
    double error, bound;                /* of the tensor below */
    bool absolute;                      /* they are not relative to a norm: none of them is too large to judge by */
    struct scale scale;                 /* the device's numbers as a multiple of the truth's */
    double truth;                       /* squared norm of the device's part of the truth */
    char tensor[PARAM_NAME];            /* its name; "": nothing was compared */
    int rank;                           /* the device */
    bool of_file;                       /* no device's numbers, but the one-device run's beside a golden file's */
    int64_t step;                       /* of the run */
    struct apart_element element;       /* the first that differs, in the device's part of the tensor */
};

/* A spread is one tensor on all devices that have it. */
struct spread {
    char kind[24], tensor[PARAM_NAME];  /* "gradient", "activation", ..; name of the tensor */
    int64_t step;                       /* of the run */
    struct evidence on;                 /* which devices have it wrong, and by what factor */
};

struct comparison {
    bool exact;                         /* sums do not round: any difference from a one-device run is wrong */
    bool loss_rounds;                   /* but not of the loss, whose routers' part is added in fp64, by device */
    bool beside_file;                   /* the one-device run is compared with a golden file, too */
    struct worst loss, activation, activation_gradient, gradient, quantised, norm, weight, state;
    struct worst choice;                /* of a mixture: error is a difference of two logits (routing.h) */
    int64_t choices, choices_differ;    /* tokens whose experts were compared, in all layers and steps; which differ */
    bool codes;                         /* states are codes: numbers may differ in a bit, and be a code apart */
    struct worst largest;               /* the largest error of any tensor, regardless of its bound; not of codes */
    char largest_kind[24];              /* such as "gradient" or "activation" */
    bool failed;                        /* a tensor is outside its bound; then `first` and `where` are set */
    struct worst first;                 /* the first failure in order of execution, on its worst device */
    char first_kind[24];                /* of `first` */
    struct spread where;                /* the same tensor on all devices */
    char before[PARAM_NAME + 32];       /* the tensor compared just before, which held; empty: none */
    bool number;                        /* the failure is a single number: the loss, the norm */
    bool excess;                        /* the failure is a quantised gradient: error in units of its proven bound */
    int expert[2];                      /* the failure is a choice of experts: the one-device run's and the device's, if
                                         * they are not equal */
    char from[160];                     /* the operation that computes it, as text; empty: not an activation */
    struct spread current;              /* the tensor that is being compared */
    bool diverged;                      /* the one-device run has infinities or NaNs.  From then on the only check is
                                         * that loss and norm are not finite where the one-device run's are not */
    struct spread divergence;           /* the first tensor with such numbers; before it everything was compared */
    bool passing;                       /* a divergence in this step ends with it: loss scaling skips the step */
    int64_t compared;                   /* tensors, over all devices and steps */
    int64_t shown, unrounded;           /* activations and their gradients among them; those of which the sums were
                                         * compared, too, before they were rounded */
    int64_t wrong;                      /* the number of these that failed */
    int64_t unjudged;                   /* the number of these that cannot be judged: judgement.h */
    struct worst open;                  /* the first of them in order of execution */
    char open_kind[24];                 /* of `open` */
    int64_t warned;                     /* the number of these that are right by a wide bound */
    struct worst wide;                  /* the one with the widest */
    char wide_kind[24];                 /* of `wide` */
};

/** Whether all that was compared is right: the only verdict that is OK. */
bool comparison_holds(const struct comparison *);

/** Begin a step.  @param scaled  with a dynamic loss scale a step that overflows is skipped, and a divergence ends with
 *  it. */
void comparison_step(struct comparison *, bool scaled);

/** An error as bounds are: over the norm of the whole truth, `size`, or as it is if that is 0. */
double held_error(const struct sums *, double size);

/**
 * Compare one tensor of one device with its bound.  Call it tensor by tensor in order of execution, and for all devices
 * of a tensor in a row.
 * @param of     the comparison's member that keeps the worst of this kind.
 * @param found  tensor, rank, step and bound are given; the rest is set here.
 * @param size   norm of the whole truth.
 */
void comparison_tensor(struct comparison *, struct worst *of, const char *kind, struct worst found, const struct sums *,
                       double size);

/** Judge one number of the whole model, which is the same on every device.
 *  @param found  step, and whether it is a comparison with a golden file, are given; the rest is set here.
 *  @param bound  absolute. */
void comparison_number(struct comparison *, struct worst *of, const char *name, double actual, double truth,
                       double bound, struct worst found);

/** Judge the choices of experts in one layer that differ from the one-device run's.
 *  @param found  the worst of them: tensor, rank and step; error is the difference of the logits of the two experts,
 *                bound the largest that rounding explains. */
void comparison_choice(struct comparison *, struct worst found, int own, int theirs);

/** Judge a quantised gradient.  @param excess  each element's distance from the exact sum, in units of its
 *  bound. */
void comparison_excess(struct comparison *, struct worst found, struct tensor excess);

/** In one line: how many cannot be judged, and of the first one tensor, step, device and why.  @return out. */
const char *comparison_unjudged(char *out, size_t size, const struct comparison *, const struct plan *);

/** In one line: how many are right by a wide bound, and the one with the widest; empty if none are.  @return out. */
const char *comparison_warning(char *out, size_t size, const struct comparison *, const struct plan *);

/** A tensor's name for a sentence: "gradient h.0.ln_1.bias", "loss".  @return out. */
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

/** Add the worst of a kind of tensors to a report.  @return its object. */
struct cJSON *worst_add(struct cJSON *to, const char *name, const struct worst *);

#endif
