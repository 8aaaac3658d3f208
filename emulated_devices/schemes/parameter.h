/* parameter.h -- the pieces of parameters with which one device computes.
 *
 * model/trainer_open.c lists a device's parameters, and the data scheme gives memory to w and g.  The model reads
 * both.  No function returns an error code.
 */
#ifndef ORRERY_PARAMETER_H
#define ORRERY_PARAMETER_H

#include "emulated_devices/device/device.h"
#include "emulated_devices/device/layout.h"
#include "ref/model/param.h"
#include "ref/optim/optimizer.h"

struct parameter {
    struct param_spec spec;             /* of the whole parameter */
    int index;                          /* in the model's list, model_param() */
    int tile;                           /* the tile's number, if its matrix is tiled; tiles are adjacent in the list */
    struct layout layout;               /* this device's boxes */
    bool apart;                         /* of an expert that only some devices have: shared by devices of its own */
    bool copied;                        /* other devices along tp have all of its elements, too */
    struct tensor w, g;                 /* [layout_rows, layout_cols], or [n] for vectors: views; data is NULL while the
                                         * data scheme does not have them whole on this device (data.h) */
    int64_t counted;                    /* leading elements of the gradient that this device counts in the global norm:
                                         * each element counts on one device, apart from copies along dp */
    int64_t own;                        /* leading elements that no earlier device along tp, or etp, has */
    int holders;                        /* places of the pipeline that hold this piece and sum its gradients: 1, or 2 if
                                         * it is tied, or its stage is held twice */
    int64_t place;                      /* offset of its first element in its unit (unit.h) */
};

/* All of a device's parameters.  They are made in turns, three for each of the kinds of units.h; in each turn their
 * indices ascend. */
enum { PARAMETER_TURNS = 9 };
struct parameters {
    int count;                          /**< Entries of `all`. */
    int end[PARAMETER_TURNS];           /* how many there are after each turn; the last one is `count` */
    struct parameter *all;              /* [count], ordered by unit, then as in the model's list */
};

/** The parameter with this index in the model's list, or its first tile; NULL if the device holds no piece of it. */
struct parameter *parameter_find(const struct parameters *, int index);

/** A piece as a tensor: boxes with the same columns are stacked to one matrix. */
struct tensor parameter_view(const struct parameter *, void *data, enum dtype);

#endif
