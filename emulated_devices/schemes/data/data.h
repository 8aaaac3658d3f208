/* data.h -- the seam for data parallelism: who reduces gradients, who steps which weights. */
#ifndef ORRERY_DATA_SCHEME_H
#define ORRERY_DATA_SCHEME_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/schemes/parameter.h"

struct data_parallel {
    const struct data_scheme *scheme;
    struct device *device;
    struct group *group;                        /* along dp: devices with the same pieces and other sequences */
    struct parameters *parameters;
    const struct optimizer *optimizer;
    const struct hyperparameters *hyper;
    const char *allreduce;                      /* algorithm; NULL: the default */
    int64_t bucket;                             /* bytes reduced at a time, > 0 */
};

struct data_scheme {
    const char *name, *description, *source;
    const char *memory, *volume;                /* formulas, for the list */

    /* Allocate the optimizer's state. */
    enum error_code (*open)(struct data_parallel *, struct error *);
    void (*close)(struct data_parallel *);
    /* Gradients of the device's own sequences, scaled by the whole batch, become those of the whole batch. */
    enum error_code (*reduce)(struct data_parallel *, struct error *);
    /* This device's part of the squared global norm: over all devices the parts add up to it. */
    double (*norm_part)(struct data_parallel *);
    /* Step t of the weights, with every gradient multiplied by gradient_scale first; then gradients are zero again. */
    enum error_code (*step)(struct data_parallel *, int64_t t, double gradient_scale, struct error *);
    /* Messages, bytes and additions of this device on the dp group in one step, exactly. */
    struct collective_cost (*cost)(const struct data_parallel *);
};

extern const struct data_scheme *const data_schemes[];          /* ends with NULL; [0] is the default */

/** A scheme by name.  @return OK, or ERR_USAGE naming the nearest. */
enum error_code data_scheme_find(const struct data_scheme **, const char *name, struct error *);

#endif
