/* optimizer.h -- from gradients to new weights, element by element, so that any piece of a tensor can
 * be stepped alone. */
#ifndef ORRERY_OPTIMIZER_H
#define ORRERY_OPTIMIZER_H

#include "ref/error.h"
#include "ref/numeric/tensor.h"

struct hyperparameters {
    double lr, beta1, beta2, eps, weight_decay, momentum;
    double clip;                        /* largest global gradient norm; 0: no clipping */
    double distance;             /* from the weights to where losses are taken, where these are all there is (mezo.h) */
    int64_t warmup, steps;         /* linear warm-up over so many steps, then a half cosine down to min_lr at `steps` */
    double min_lr;
    int64_t rank, refresh;              /* of a low-rank optimizer: directions it keeps of a matrix; steps until it
                                         * finds them anew */
    double galore_scale;                /* what its steps of matrices are multiplied with */
    int64_t history;                    /* of natural GaLore: projected gradients that it remembers */
    double damping;                     /* ... and lambda, what is added to the diagonal of their Fisher matrix */
};

/* One step of one piece.  t counts from 1.  gradient_scale multiplies every gradient first (clipping). */
struct step {
    double lr, weight_decay, gradient_scale;    /* weight_decay is 0 for parameters that do not decay */
    int64_t t;
    const struct hyperparameters *hyper;
};

enum { OPTIMIZER_MAX_STATES = 4 };

struct optimizer {
    const char *name, *description, *source;
    const char *memory;                 /* numbers that it keeps, for the list; NULL: `states` for each parameter */
    int states;                     /* tensors of the weights' shape and (master) format that it keeps, zero at first */
    const char *state_name[OPTIMIZER_MAX_STATES];       /* as in checkpoints */
    int operations;                     /* arithmetic of one element's step, for virtual time */
    struct hyperparameters usual;
    bool low_rank;       /* matrices of linear layers are projected and stepped whole, by galore.h; all else as below */
    bool natural;                       /* ... and the projected gradient is made a natural one */
    bool forward_only; /* knows losses alone: its gradient is a slope times a drawn direction (ref/model/mezo.h), and
                                           is kept by nobody */
    void (*step_f32)(struct tensor w, struct tensor g, const struct tensor state[], struct step);
    void (*step_f64)(struct tensor w, struct tensor g, const struct tensor state[], struct step);
};

extern const struct optimizer *const optimizers[];      /* ends with NULL; [0] is the default */

/** An optimizer by name.  @return OK, or ERR_USAGE naming the nearest. */
enum error_code optimizer_find(const struct optimizer **, const char *name, struct error *);

/**
 * w and its state after one step.
 *
 * In mixed precision w is the fp32 master copy of weights that the model has in 16 bits: gradients of 16 bits are
 * widened, exactly, and step it like fp32 ones; then, and whenever the master is read from a file, the model's weights
 * are made of it again by tensor_convert (convert.h).
 * @param w, state  all fp32 or all fp64.
 * @param g         of w's format; or 16 bits where w is fp32.
 * Rounding: each element in w's format, factors computed in double.
 */
void optimizer_step(const struct optimizer *, struct tensor w, struct tensor g, const struct tensor state[],
                    struct step);

/** The learning rate of step t (from 1): lr t/warmup, then min_lr + (lr - min_lr)(1 + cos(pi x))/2
 * with x from 0 to 1. */
double learning_rate(const struct hyperparameters *, int64_t t);

/** What gradients of this global norm are multiplied with so that it is at most clip. */
double clip_scale(const struct hyperparameters *, double norm);

#endif
