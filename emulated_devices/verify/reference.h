/* reference.h -- the one-device run beside a plan, and a disturbed twin of it that says what rounding may do.
 *
 * Serial; lives on the device that compares (rank 0).  Both start from the same initial weights as the devices and take
 * the same step.  After a step has been compared they may go on from the devices' weights (reference_follow), so that
 * every step is held to its own small bound: rounding differences that an optimizer has made grow from step to step
 * without limit, in two correct programs as well, and would soon hide a mistake.
 */
#ifndef ORRERY_REFERENCE_H
#define ORRERY_REFERENCE_H

#include "emulated_devices/model/collect.h"
#include "emulated_devices/verify/record.h"
#include "emulated_devices/verify/rule.h"

/* One serial model in training. */
struct serial_run {
    struct transformer model;
    struct tensor *older;              /* [params] the weights before the newest, for rules that take gradients there */
    struct tensor *master;              /* [params] what the optimizer steps: the weights, or fp32 copies of 16-bit
                                         * ones, or copies of quantised ones */
    struct tensor *gathered;            /* [params] what passes use where devices gather quantised weights before use;
                                         * else NULL */
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] */
    double loss;                        /* mean over the labels of the step's sequences so far */
    double norm;                        /* of the last gradient, without the loss scale */
    double side[2], slope;              /* where there is no backward pass: mezo.h */
    struct tensor *anchor, *momentum;   /* [params] of replicas that train apart, with the first of them: as the last
                                         * outer step left both */
};

/* Bounds that were measured elsewhere.  Relative; 0: there is none, and the tensor is not compared. */
struct known_bounds {
    double loss, norm;
    double *gradient, *weight;          /* [params] */
    double *state;                      /* [params * OPTIMIZER_MAX_STATES] */
};

/* How far singular vectors found in this step may be from those of a correct program, as norms:
 * of P, and of R for that. */
struct turn { double P, R; };

struct reference {
    const struct plan *plan;
    struct plan at;                     /* where batches differ, the plan of this step: then it is `plan` */
    int replica, replicas;              /* of those that train apart, which this one is; 0 of 1 where none do */
    struct reference *other;            /* [replicas - 1] of the first one: the others */
    struct batch_source source;
    struct rule rule;
    struct serial_run truth, twin;
    struct perturbation perturbation;
    struct recording record;            /* the truth's activations in this step, and how far the twin's are from them */
    double *response;      /* [params] norm of how far the last step may move the weights through the optimizer alone */
    int32_t *ids, *labels;              /* [B*S] */
    int32_t *counting;                 /* [B*S] the labels of one optimizer step's sequences; the others' are ignored */
    int64_t apart;                      /* steps since the weights were last the anchor, or the devices' */
    double *anchor_response, *momentum_response;        /* [params] with the first replica: the same of what the last
                                                         * outer step made */
    double *state_response;          /* [params * OPTIMIZER_MAX_STATES] the same of its states, for models in 16 bits */
    struct turn *turn;           /* [params] of matrices that are projected: by how much that may differ in this step */
    double stored;        /* what a gradient of 16 bits may be off by because its parts and sums are stored; relative */
    int64_t counted;                    /* labels of the step's sequences so far that are not ignored */
    double loss_spread;                 /* sum over them of |loss of the twin - loss of the truth| */
    double side_spread[2];              /* the same on either side of the weights */
    int64_t step;
    int updated;                        /* optimizer steps taken in this step so far */
    struct loss_scale loss_scale;
    int64_t skipped;                    /* steps left out */
    /* Puts a better truth (a golden file's) in the place of what the one-device run has just computed; NULL:
     * it is the truth. */
    enum error_code (*replace)(void *context, struct reference *, struct error *);
    void *replace_context;
    const struct known_bounds *known;   /* instead of the twin's; the record has its own; NULL: the twin's */
};

/** One of the replicas that train apart, by its number; where none do, 0 is all there is.  The functions below are
 *  about all of them, but for bounds of one parameter's tensor. */
static inline struct reference *reference_replica(struct reference *r, int replica)
{
    return replica == 0 ? r : &r->other[replica - 1];
}

/** Whether the optimizer steps copies of the weights: of 16-bit ones, or of those that devices
 * gather quantised after the step. */
bool reference_has_masters(const struct plan *);

/** @return OK, or ERR_MEMORY with nothing to close. */
enum error_code reference_open(struct reference *, const struct plan *, struct batch_source, struct error *);
void reference_close(struct reference *);

/** What devices add up of one gradient in its own format: a microbatch of each copy, and a tied
 * embedding's two uses of it. */
int reference_gradient_parts(const struct plan *);

/**
 * Put both where the devices are now: weights, optimizer state and number of steps.
 * Collective over all devices; the reference is on rank 0 and not read elsewhere.
 */
enum error_code reference_follow(struct reference *, struct trainer *, struct error *);

/** Loss, activations, gradients and norm of the next batch, for both.  By a rule with several optimizer steps in one
 *  training step, all but the last are taken, and gradients are the last one's. Activations are recorded where the
 *  plan computes plain training.  @return OK, ERR_MEMORY, or ERR_PLAN if the model announces what no probe knows. */
enum error_code reference_gradients(struct reference *, struct error *);

/** The same where there is no backward pass: both losses, the slope, and as gradients what the optimizer makes of it,
 *  the slope times the direction.  Nothing is recorded.  (What reference_gradients does
 *  then.)  @return OK or ERR_MEMORY. */
enum error_code reference_losses(struct reference *, struct error *);

/**
 * Step both, and zero their gradients.
 *
 * Adam divides each gradient by its own size, so that where a gradient is hardly more than rounding noise its step is
 * noise of full size.  Which elements that hits is chance, and the twin's chance is not the devices'.  Therefore each
 * element's step is also taken with its gradient moved up and down by the largest difference between the twin's
 * gradient and the truth's in that tensor; the farther of the two is its response, and the norm of the responses adds
 * to the bound.  (A low-rank optimizer spreads an element of R over a column of the weights: there the two steps'
 * distances make up the response.)
 *
 * A step whose gradients are not finite is left out, by the rule of loss_scale.h.  At the end of a round of replicas
 * that train apart the outer step follows: it takes the mean of what their last steps may be off by, and rounds itself.
 * @return OK or ERR_MEMORY.
 */
enum error_code reference_update(struct reference *, struct error *);

/**
 * After gradients were compared, and devices' were quantised: go on from theirs, and their norm.  The twin stays as far
 * from the truth as it was.  Collective, as reference_follow.
 */
enum error_code reference_take_gradients(struct reference *, struct trainer *, struct error *);

/**
 * Where devices gather quantised weights after the step: the weights are, bit for bit, what the devices' masters round
 * to.  Those are compared by themselves; one that rounding has moved across a tie has another code, and is right.
 * Collective, as reference_follow.
 */
enum error_code reference_renew(struct reference *, struct trainer *, struct error *);

/** The bound for a parameter's weights: norm of twin - truth and of the last step's responses, over the norm of the
 *  truth; + 2u.  0 after reference_renew. */
double reference_weight_bound(const struct reference *, int param);

/** The bound for what the optimizer steps, where that is a copy in fp32. */
double reference_master_bound(const struct reference *, int param);

/** Whether the truth's gradients of this step are not finite, so that the step is to be skipped. */
bool reference_overflows(const struct reference *);

/** The bounds for the common tensors of replicas that train apart: the anchor, the outer momentum. */
double reference_anchor_bound(const struct reference *, int param);
double reference_momentum_bound(const struct reference *, int param);

/** Loss and norm of the step: the truth's, of all replicas together as in struct step_result. */
double reference_loss(const struct reference *);
double reference_norm(const struct reference *);

/** The bound for its gradient: norm of twin - truth over norm of truth; + 2u.  Devices add up 16-bit gradients of
 *  microbatches and copies in 16 bits: then 2u of each of them, as long as none is larger than their sum. */
double reference_gradient_bound(const struct reference *, int param);

/** The bound for a state of the optimizer: norm of twin - truth over norm of truth; + 2u.  For models in 16 bits also
 *  its responses: in a square that few elements make up, the twin may be near the truth by chance. */
double reference_state_bound(const struct reference *, int param, int state);

/** The bound for the global norm of all gradients: the norm of twin - truth over all parameters, which no difference of
 *  two norms exceeds; + 2u.  Not relative. */
double reference_norm_bound(const struct reference *);

/** The bound for the loss: the mean over tokens of how far the twin's losses are from the truth's, and the rounding of
 *  the mean itself.  (The difference of the two means alone could be small by chance.) */
double reference_loss_bound(const struct reference *);

/** What it is made of: the sum over the labels that counted in the last pass of |loss of the twin - loss of the truth|,
 *  and the bound for a mean of so many, from their sum and the mean itself. */
double reference_spread(const struct reference *);
double reference_mean_bound(const struct reference *, double spread, double mean);

/** The bound for the loss on one side of the weights, as for any loss; and for the slope: both bounds over 2 eps, since
 *  what rounding does to a loss is in the slope 1/(2 eps) times.  Not relative. */
double reference_side_bound(const struct reference *, int side);
double reference_slope_bound(const struct reference *);

#endif
