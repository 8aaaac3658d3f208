/* parameter.h -- the pieces of parameters that one device computes with. */
#ifndef ORRERY_PARAMETER_H
#define ORRERY_PARAMETER_H

#include "emulated_devices/device/device.h"
#include "emulated_devices/device/layout.h"
#include "ref/model/config.h"
#include "ref/optim/optimizer.h"

struct parameter {
    struct param_spec spec;             /* of the whole */
    int index;                          /* in the model's list, model_param() */
    int tile;        /* which tile of its matrix it is, if that is tiled: a device's tiles are neighbours in its list */
    struct layout layout;               /* this device's boxes */
    bool copied;                        /* other devices along tp have all of them too */
    struct tensor w, g; /* [layout_rows, layout_cols], or [n] for vectors: views, data NULL while the data scheme
                                           does not have them whole here (data.h) */
    int64_t counted;    /* elements of its gradient, from the first on, that count in the global norm here: each on
                                           one device, copies along dp aside */
    int holders;        /* places of the pipeline that hold the same piece: 1, or 2 if it is tied across stages or
                                           its stage is there twice; their gradients are added up */
    int64_t place;                      /* of its first element among the parameters of its unit (unit.h) */
};

/* All of a device's parameters. */
struct parameters {
    int count;
    struct parameter *all;              /* [count], in the order of their units; in each, of the model's list */
};

/** The parameter with this place in the model's list, its first tile if it is tiled;
 * NULL if the device does not hold a piece of it. */
struct parameter *parameter_find(const struct parameters *, int index);

/** A piece as a tensor: boxes that share their columns stack to one matrix. */
struct tensor parameter_view(const struct parameter *, void *data, enum dtype);

#endif
