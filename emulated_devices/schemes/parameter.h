/* parameter.h -- the pieces of parameters that one device holds. */
#ifndef ORRERY_PARAMETER_H
#define ORRERY_PARAMETER_H

#include "emulated_devices/device/device.h"
#include "emulated_devices/device/layout.h"
#include "ref/model/config.h"
#include "ref/optim/optimizer.h"

struct parameter {
    struct param_spec spec;             /* of the whole */
    int index;                          /* in the model's list, model_param() */
    struct layout layout;               /* this device's boxes */
    struct tensor w, g;                 /* [layout_rows, layout_cols], or [n] for vectors */
    struct tensor state[OPTIMIZER_MAX_STATES];
    bool counted;                       /* whether its gradient counts in the global norm here: one device for each piece */
    int holders;                        /* places of the pipeline that hold the same piece: 1, or 2 if it is tied across stages or
                                           its stage is there twice; their gradients are added up */
};

/* All of a device's parameters. Gradients lie one after another in one block, last layer first: the order in which
 * backward finishes them. */
struct parameters {
    int count;
    struct parameter *all;              /* [count], in the order of the model's list */
    struct tensor gradients;            /* [elements], the block that every g is part of */
};

/** The parameter with this place in the model's list, or NULL if the device does not hold a piece of it. */
struct parameter *parameter_find(const struct parameters *, int index);

/**
 * Allocate weights and gradients for layouts that are already filled in, and draw the initial weights of each box from
 * its place in the whole tensor, so that every mesh starts with the same bits.
 * @return OK, or ERR_MEMORY (some may be allocated; parameters_free works).
 */
enum error_code parameters_make(struct parameters *, struct device *, uint64_t seed, struct error *);
void parameters_free(struct parameters *, struct device *);

#endif
