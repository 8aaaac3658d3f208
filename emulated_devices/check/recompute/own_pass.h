/* own_pass.h -- a pass of our model from the weights that another program had before a step.
 *
 * Serial.  The pass is in fp64, and not disturbed.  So an error of one step of the program is not one of the next.
 * report/passes.c judges tensors of later steps with it; report/choices.c tries other choices of experts;
 * mistakes/stale.c reads the weights.
 */
#ifndef ORRERY_OWN_PASS_H
#define ORRERY_OWN_PASS_H

#include "emulated_devices/check/dump/assembly.h"
#include "ref/golden/bounds.h"

/* The weights that ACTUAL had before a step. */
struct own_weights {
    struct tensor *all;                 /* [params] F64, in the order of the model's parameters */
    int params;                         /**< Entries of `all`. */
    bool complete;                      /* ACTUAL has all of them; else nothing is in `all` that may be used */
};

/* ACTUAL has the gradient of A or B in the place of the weight's.  Ours follows from that.  The distance is then
 * relative to what the gradient of the weight could make of it: scaling |other| |dW|. */
struct own_factor {
    const struct adapter *of;           /* whose A or B it is */
    char which;                         /* 'A' or 'B' */
    double *other, size;                /* the other of both, and its norm times the scaling */
    int64_t in;                         /* columns of the weight */
};

/* A result x has a part along ours that ours does not have: <x - ours, ours> / |ours|^2.  This is -1 of a result that
 * has nothing to do with ours, such as zeros, and -0.5 of its half.  Roundings that go in all directions move the share
 * by much less than the whole. */
struct own_share {
    double off;                         /* of ACTUAL's, without its sign */
    double bound, spread;               /* as of the whole */
};

/* Rounding may move a result by more than itself, and all of that in few directions: those of a token whose query is
 * nearly zero before it is divided by its norm.  The rest is what is at right angles to them. */
struct own_rest {
    double *truth;                      /* [count] ours, with ACTUAL's part in these directions; NULL: there is no
                                         * rest */
    double off, bound;                  /* of ACTUAL's from `truth`, and what rounding does to it; over its norm */
};

/* A result of the pass, as ACTUAL has it and as our model computes it. */
struct own_result {
    char name[RECORD_NAME];             /* that a pass over the first batch has: "grad/wte.weight", "loss" */
    int entry;                          /* the caller's number */
    double *have;                       /* [count] ACTUAL's */
    int64_t dim[2], count;
    int record;                         /* of `plain`, once it was run; -1: our model has no such result */
    double size, off;                   /* the norm of ours; the distance of ACTUAL's, relative */
    struct own_factor *factor;          /* of A or B of an adapter, whose name is that of the weight's gradient; else
                                         * NULL */
    double bound, spread;               /* what rounding does to ours; what other choices of experts do, 0: there are
                                         * none */
    struct own_share share;             /* zeros where `factor` is there */
    struct own_rest rest;               /**< Part at right angles to the directions of rounding. */
};

struct own_pass {
    struct own_result *all;             /* [count] sorted by name */
    int count;                          /**< Entries of `all`. */
    struct replay_pass begins;          /**< Weights, corrections and choices that the pass begins with. */
    struct replay plain;                /* once it was run */
    double *bias;                       /* [L, columns of a router] a copy of what the pass begins with */
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
 * Read the corrections of routers that ACTUAL had before a step.
 * @param[in,out] bias  [L, columns of a router]; those that ACTUAL does not have stay.
 * @param[out] there    whether ACTUAL has all.
 * @return as own_tensor_read.
 */
enum error_code own_biases_read(const struct golden *, const struct actual *, const char *optimizer, int64_t step,
                                double *bias, bool *there, struct error *);

/** The name of a weight, or a router's correction, after so many steps: "adamw/2/weight/NAME".  @return out. */
const char *own_name(const struct golden *, const char *optimizer, int64_t step, const char *param, char out[160]);

/**
 * Read one tensor of ACTUAL whole.
 * @param dim         its rows and columns.
 * @param[out] there  whether ACTUAL has all its elements, and they fit; only then are `values` all set.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code own_tensor_read(const struct actual *, const char *name, const int64_t dim[2], double *values,
                                bool *there, struct error *);

/** Prepare a pass.  @param bias  corrections of routers before it.  @return OK or ERR_MEMORY with nothing to close. */
enum error_code own_pass_open(struct own_pass *, const struct own_weights *, const struct golden *, int64_t step,
                              const double *bias, struct error *);

/**
 * Add a result that is judged, if ACTUAL has it whole.
 * @param name   that the first pass has: it gives the shape.  @param actual_name  that ACTUAL has.
 * @return OK, also if it is not there; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code own_pass_add(struct own_pass *, const struct golden *, const struct actual *, const char *name,
                             const char *actual_name, int entry, struct error *);

/** Add the gradient of an adapter's A or B.  @param actual_name  that ACTUAL has.  @return as own_pass_add. */
enum error_code own_pass_add_factor(struct own_pass *, const struct golden *, const struct actual *,
                                    const char *optimizer, const char *actual_name, int entry, struct error *);

/** Make a factor's gradient of our gradient of the weight.  @param[out] out  [count of the result]. */
static inline void own_factor_make(const struct own_factor *factor, struct tensor ours, double *out)
{
    adapter_gradient(factor->of, factor->which, factor->other, ours.data, factor->in, out);
}

/** Add a number that the caller has.  @return OK or ERR_MEMORY. */
enum error_code own_pass_add_number(struct own_pass *, const char *name, double have, int entry, struct error *);

/** Find a result by the name that the first pass has; NULL: it is not judged.  Only after own_pass_run. */
struct own_result *own_pass_find(const struct own_pass *, const char *name);

/** The next result of the same name: a dump may have a loss twice.  NULL: there is none. */
struct own_result *own_pass_next(const struct own_pass *, struct own_result *);

/** Run the pass, again if it was run, and set each result's record, size and off.
 *  @return as replay_pass_run; own_pass_close is due in any case. */
enum error_code own_pass_run(struct own_pass *, const struct golden *, struct error *);
void own_pass_close(struct own_pass *);

/** Compute how far another run's result is from ours, once both are stored in a format; relative. */
double own_result_apart(const struct own_pass *, const struct own_result *, const struct replay *other, enum dtype);

/** Compute the share of a run's result that ours does not have, without its sign, once both are stored.
 *  @param apart, size  the squared distance of the run's from ours, and its squared norm. */
double own_share_of(const struct own_result *, double apart, double size, enum dtype);

#endif
