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
    struct tensor older;                /* the weights before the last step, where a schedule keeps two versions; else none */
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
    bool turned;                        /* w and older have changed places: w is the older version */
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

/* Two versions of the weights, for schedules whose microbatches still need the older one (pipedream_2bw.c). */

/** Keep a second version, at first the same as the first.  @return OK or ERR_MEMORY. */
enum error_code parameters_keep_older(struct parameters *, struct device *, struct error *);

/** Let w be the older version, or the newest, until told otherwise.  Nothing where there is one. */
void parameters_use(struct parameters *, bool older);

/** Before a step: what is newest becomes the older version, and w a copy of it, to be stepped.  Nothing where there is one. */
void parameters_age(struct parameters *);

/** Make the older version the same as w, after weights were loaded.  Nothing where there is one. */
void parameters_same(struct parameters *);

#endif
