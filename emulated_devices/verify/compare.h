/* compare.h -- every device's loss, gradients and weights against the one-device run, each beside its bound. */
#ifndef ORRERY_COMPARE_H
#define ORRERY_COMPARE_H

#include "emulated_devices/model/collect.h"
#include "emulated_devices/verify/reference.h"

/* The worst of its kind so far: error and bound are relative, norm over norm of the whole tensor. */
struct worst {
    double ratio;                       /* error / bound; above 1, or NaN, the comparison does not hold */
    double error, bound;
    char tensor[PARAM_NAME];
    int rank;                           /* the device that has it */
    int64_t step;
};

struct comparison {
    struct worst loss, gradient, weight;
    double largest_error;               /* of any tensor, whatever its bound */
    bool failed;
    struct worst first;                 /* the first that did not hold, in order of execution */
    char first_kind[16];
    int64_t compared;                   /* tensors, over all devices and steps */
};

/**
 * Compare the loss and every gradient / every weight, on all devices that hold a piece.
 * Collective; the result is on rank 0, where `ref` must be given (it is not read elsewhere).
 */
enum error_code compare_gradients(struct trainer *, struct reference *ref, double loss, struct comparison *, struct error *);
enum error_code compare_weights(struct trainer *, struct reference *ref, struct comparison *, struct error *);

#endif
