/* optimizer.h -- the table of optimizers, their steps and what they keep for each parameter.  They work element by
 * element, so that any shard of a tensor can be stepped alone.
 *
 * Devices, ref/model, ref/golden and verify/ step with these functions; options and plans look optimizers up by name.
 */
#ifndef ORRERY_OPTIMIZER_H
#define ORRERY_OPTIMIZER_H

#include "ref/error.h"
#include "ref/numeric/tensor.h"
#include "ref/optim/conventions.h"

struct hyperparameters {
    double lr, beta1, beta2, eps, weight_decay, momentum;       /* learning rate after warm-up; Adam's decay rates and
                                         * epsilon; decay of matrices; sgd's momentum */
    double clip;                        /* largest global gradient norm; 0: no clipping */
    double distance;                    /* of a forward-only optimizer: eps of mezo.h */
    int schedule;                       /* of the learning rate: enum rate_schedule of rates.h */
    int64_t warmup, steps, decay;       /* linear warm-up over `warmup` steps; min_lr at `steps`; the last `decay` of
                                         * them fall, with a schedule that has a decay */
    double min_lr;                      /* learning rate at the end of the schedule */
    int64_t rank, refresh;              /* of a low-rank optimizer: directions kept of a matrix; steps between new
                                         * directions */
    double galore_scale;                /* factor on its steps of matrices */
    int64_t history;                    /* of natural GaLore: number of projected gradients that it keeps */
    double damping;                     /* of natural GaLore: lambda, added to the diagonal of their Fisher matrix */
    struct conventions as;              /* whose step it is; all zeros: ours */
};

/* One step of one shard.  t counts from 1.  Every gradient is first multiplied by gradient_scale (clipping). */
struct step {
    double lr, weight_decay, gradient_scale;    /* weight_decay is 0 for parameters that do not decay */
    int64_t t;                                  /* number of this step, for bias corrections */
    const struct hyperparameters *hyper;        /* of the run: betas, eps, momentum, conventions */
};

enum { OPTIMIZER_MAX_STATES = 4 };

/** This holds what a released package's optimizer takes if its caller gives it no numbers. */
struct package_usual { double beta1, beta2, eps, weight_decay; /**< as the fields of struct hyperparameters */ };

struct optimizer {
    const char *name, *description, *source;    /* as in --optimizer; one line for `orrery list`; the defining paper */
    const char *memory;                 /* numbers that it keeps, for `orrery list`; NULL: `states` per parameter */
    int states;                         /* tensors of the weights' shape and (master) format; initially zero */
    const char *state_name[OPTIMIZER_MAX_STATES];       /* as in checkpoints */
    int operations;                     /* arithmetic operations per element and step, for the virtual clock */
    struct hyperparameters usual;       /* values that a run takes if no flag sets them */
    const struct package_usual *usual_as;       /* [PROFILES] with --as, by enum profile; NULL: `usual` (moments.h) */
    bool low_rank;                      /* galore.h projects and steps whole matrices of linear layers; other
                                         * parameters use the functions below */
    bool natural;                       /* low_rank with natural gradients */
    bool forward_only;                  /* there is no backward pass, and no gradient is stored */
    bool infers;                        /* forward_only, and nothing is stepped; else two losses make a step along a
                                         * drawn direction (ref/model/mezo.h) */
    /* Steps one fp32 shard in place: w and state change, g does not. */
    void (*step_f32)(struct tensor w, struct tensor g, const struct tensor state[], struct step);
    /* The fp64 form of step_f32, compiled from the same source. */
    void (*step_f64)(struct tensor w, struct tensor g, const struct tensor state[], struct step);
};

enum { OPTIMIZERS_MOST = 32 };
extern const struct optimizer *optimizers[OPTIMIZERS_MOST];     /* ends with NULL; [0] is the default */

/** Add one to the list, as the last: before a plan is made.  It must live as long as the program.
 *  @return OK; ERR_FORMAT: it lacks something, or the name is taken; ERR_MEMORY: the list is full. */
enum error_code optimizer_add(const struct optimizer *, struct error *);

/* Inference has this instead of an optimizer: it has no functions, and is not in the list. */
extern const struct optimizer no_optimizer;

/** Whether an optimizer steps along a drawn direction. */
static inline bool optimizer_draws(const struct optimizer *optimizer)
{
    return optimizer->forward_only && !optimizer->infers;
}

/** Find an optimizer by name.  @return OK, or ERR_USAGE with the nearest name. */
enum error_code optimizer_find(const struct optimizer **, const char *name, struct error *);

/**
 * Step w and its state.
 *
 * In mixed precision w is the fp32 master of 16-bit weights.  16-bit gradients are widened exactly and used like fp32
 * ones.  After a step, or after reading a master from a file, the caller sets the model's weights with tensor_convert
 * (convert.h).
 * @param w, state  all fp32 or all fp64.
 * @param g         in w's format; or 16 bits if w is fp32.
 * Rounding: each element in w's format, factors computed in double.
 */
void optimizer_step(const struct optimizer *, struct tensor w, struct tensor g, const struct tensor state[],
                    struct step);

/** The learning rate of step t (from 1), by the schedule (rates.h); lr if no steps are left after the warm-up. */
double learning_rate(const struct hyperparameters *, int64_t t);

/** The least learning rate of a run after its warm-up. */
double learning_rate_least(const struct hyperparameters *);

/** The weight decay of a parameter's step.  matrix: it has two dimensions (struct param_spec: decay). */
double weight_decay_of(const struct hyperparameters *, bool matrix);

/** The factor on gradients of this global norm that makes the norm at most clip. */
double clip_scale(const struct hyperparameters *, double norm);

#endif
