/* own_pass.h -- a pass of our model from the weights that another program had before a step.
 *
 * Serial.  The pass is in fp64, and not disturbed.  So an error of one step of the program is not one of the next.
 * report/passes.c judges gradients of later steps with it; report/choices.c tries other choices of experts.
 */
#ifndef ORRERY_OWN_PASS_H
#define ORRERY_OWN_PASS_H

#include "emulated_devices/check/dump/assembly.h"
#include "ref/golden/bounds.h"

/* The weights that ACTUAL had before a step. */
struct own_weights {
    struct tensor *all;                 /* [params] F64, in the order of the model's parameters */
    int params;
    bool complete;                      /* ACTUAL has all of them; else nothing is in `all` that may be used */
};

/* A pass, and ACTUAL's results of the same step. */
struct own_pass {
    int params;
    struct replay_pass begins;
    struct replay plain;                /* once it was run */
    double **have;                      /* [params] ACTUAL's gradients; NULL: one is not judged */
    double *size;                       /* [params] norms of ours */
    double *off;                        /* [params] distances of ACTUAL's, relative */
    double *bound, *spread;             /* [params] what rounding does to ours; other choices of experts: 0: there are
                                         * none */
    double loss_off, loss_bound, loss_spread;
    double *bias;                       /* [L, columns of a router] a copy of what it begins with */
    int32_t *route;                     /* [L, N, k] the choices of experts that explain ACTUAL best; NULL: our own */
};

/**
 * Read the weights that ACTUAL had before a step.
 * @param step  from 0; weights that ACTUAL does not have before step 0 are the golden file's.
 * @return OK, also if ACTUAL lacks some; ERR_FILE, ERR_FORMAT, ERR_MEMORY.  own_weights_free is due after OK only.
 */
enum error_code own_weights_read(struct own_weights *, const struct golden *, const struct actual *,
                                 const char *optimizer, int64_t step, struct error *);
void own_weights_free(struct own_weights *);

/**
 * Read one tensor of ACTUAL whole.
 * @param[out] there  whether ACTUAL has all its elements, and they fit; only then are `values` all set.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code own_tensor_read(const struct actual *, const char *name, const struct param_spec *, double *values,
                                bool *there, struct error *);

/** Prepare a pass.  @param bias  corrections of routers before it.  @return OK or ERR_MEMORY with nothing to close. */
enum error_code own_pass_open(struct own_pass *, const struct own_weights *, const struct golden *, int64_t step,
                              const double *bias, struct error *);

/** Run the pass, again if it was run, and set `size` and `off`.  The caller has filled `have`.
 *  @return as replay_pass_run; own_pass_close is due in any case. */
enum error_code own_pass_run(struct own_pass *, const struct golden *, struct error *);
void own_pass_close(struct own_pass *);

/** How far another run's gradient of a parameter is from ours, once both are stored in a format; relative. */
double own_pass_apart(const struct own_pass *, const struct replay *other, int param, enum dtype);

#endif
