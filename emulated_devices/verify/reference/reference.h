/* reference.h -- the one-device run beside a plan, and its disturbed twin, which measures the effect of rounding.
 *
 * Serial; on the device that compares (rank 0).  Both start from the devices' initial weights and take the same steps.
 * After a step has been compared, they may continue from the devices' weights (reference_follow), so that every step
 * has its own small bound.  Otherwise rounding differences would grow from step to step without limit, as between any
 * two correct programs, and would soon hide an error.
 *
 * Callers: compare.c and watch.c of this folder, golden_truth.c, tests.
 */
#ifndef ORRERY_REFERENCE_H
#define ORRERY_REFERENCE_H

#include "emulated_devices/model/collect.h"
#include "emulated_devices/verify/reference/record.h"
#include "emulated_devices/verify/reference/routing.h"
#include "emulated_devices/verify/reference/rule.h"

/* A run is one serial model in training. */
struct serial_run {
    struct transformer model;           /* weights, activations and gradients of one pass */
    struct tensor *older;               /* [params] the version of the weights before the newest, for delayed rules */
    struct tensor *master;              /* [params] what the optimizer steps: the weights, fp32 copies of 16-bit ones,
                                         * or copies of quantised ones */
    struct tensor *gathered;            /* [params] if devices gather quantised weights before use: their values; else
                                         * NULL */
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] as devices hold them: low_rank_state */
    double loss;                        /* mean over the labels of the step's sequences so far */
    double norm;                        /* of the last gradient, without the loss scale */
    double side[2], slope;              /* without a backward pass: mezo.h */
    struct serial_encoders encoders;    /* of what is not text */
    struct tensor *anchor, *momentum;   /* [params] with replicas that train apart, in the first one: after the last
                                         * outer step */
};

struct golden_truth;                    /* golden_truth.h */

/* How far the singular vectors computed in this step may be from another correct program's: norms of the differences of
 * P, and of R caused by it. */
struct turn { double P, R; };

/* How far a parameter's gradient in a twin is from the truth's: the norm of the difference, and its largest element. */
struct gradient_distance { double norm, farthest; };

/* Twins of a pass, if its errors ask for so many; no more than a few for an error that is so many times its bound. */
enum { MOST_TWINS = 33, FEW_TWINS = 4, HOPELESS = 30 };

struct reference {
    const struct plan *plan;            /* of the devices */
    struct plan at;                     /* with a batch plan: the plan of this step, to which `plan` points */
    int replica, replicas;              /* index and number of replicas that train apart; otherwise 0 and 1 */
    struct reference *other;            /* [replicas - 1] in the first replica: the others */
    struct batch_source source;         /* the same tokens as the devices' */
    struct rule rule;                   /* which sequences count, and for which optimizer step */
    struct serial_run truth, twin;      /* the run without, and with random errors of the size of rounding */
    struct perturbation perturbation;   /* the twin's errors */
    struct clips clips;                 /* of this step's batch */
    double encoder_response[MODALITIES][1 + OPTIMIZER_MAX_STATES];      /* of masters and states of encoders in the
                                         * last step: reference_update */
    struct recording record;            /* the truth's activations in this step, and the twin's distances from them */
    struct routing routing;             /* of a mixture */
    int32_t *dealt;                     /* [L, rows, k] the choices of a load in this step; NULL: routers choose */
    const int32_t *chosen;              /* [L, rows of the batch, k] the devices' choices in this step; NULL: they have
                                         * not taken it yet */
    double *response;                   /* [params] norm of the last step's responses: reference_update */
    int32_t *ids, *labels;              /* [B*S] */
    int32_t *within;                    /* [B*S] positions in packed samples */
    int32_t *name;                      /* [B*S] the microbatch of each token, if a balance loss is of microbatches */
    int32_t *micro_of;                  /* [B*S] the same for one optimizer step: others are not judged */
    int32_t *counting;                  /* [B*S] the labels of one optimizer step's sequences; all others are ignored */
    int64_t apart;                      /* steps since the weights were last equal to the anchor or the devices' */
    struct tensor *theta;               /* [replicas] in the first replica: one parameter of each, for the outer step */
    double *anchor_response, *momentum_response;        /* [params] in the first replica: responses of the last outer
                                                         * step */
    double *state_response;             /* [params * OPTIMIZER_MAX_STATES] responses of states, for 16-bit models */
    void *room[3];                      /* the numbers of a state that is held as bytes, each: reference_numbers */
    struct turn *turn;                  /* [params] for projected matrices: the possible difference in this step */
    int twins;                          /* passes of the twin in this pass, each with other errors */
    struct gradient_distance *earlier;  /* [params] the largest in all twins of the pass but the last */
    int stored;                         /* parts and sums of a 16-bit gradient, each stored and rounded; else 0 */
    int64_t counted;                    /* labels of the step's sequences so far that are not ignored */
    double loss_spread;                 /* sum over them of |loss of the twin - loss of the truth| */
    double pass_spread;                 /* the part of it of the last pass */
    double side_spread[2];              /* the same on each side of the weights */
    int64_t step;                       /* steps done */
    int updated;                        /* optimizer steps taken in this step so far */
    struct loss_scale loss_scale;       /* as the devices have it */
    int64_t skipped;                    /* steps skipped */
    bool adopts;                        /* in the first replica: reference_adopts_overflow in this step */
    bool took;                          /* the gradients of this step are the devices' own, bit for bit */
    struct golden_truth *golden;        /* a better truth for what it has; NULL: there is none.  The one-device run
                                         * itself never goes on from its numbers */
};

/** One of the replicas that train apart, by its number; without such replicas, 0.  The functions below work on all
 *  replicas, except bounds of one parameter's tensor. */
static inline struct reference *reference_replica(struct reference *reference, int replica)
{
    return replica == 0 ? reference : &reference->other[replica - 1];
}

/** Whether the optimizer steps copies of the weights: of 16-bit weights, or of weights that devices gather quantised
 *  after the step. */
bool reference_has_masters(const struct plan *);

/** @return OK, or ERR_MEMORY with nothing to close. */
enum error_code reference_open(struct reference *, const struct plan *, struct batch_source, struct error *);
void reference_close(struct reference *);

/** The number of summands that devices add in a result's own format: those of tp, and for each as many as a matrix has
 *  tiles, over which its input's gradient is a sum. */
int reference_parts(const struct plan *);

/** The number of summands that devices add in a gradient's own format: microbatches of all copies, and both uses of a
 *  tied embedding. */
int reference_gradient_parts(const struct plan *);

/**
 * Set both to the devices' current weights, optimizer state and number of steps.
 * Collective over all devices; the reference is on rank 0 and not read elsewhere.
 */
void reference_follow(struct reference *, struct trainer *);

/** Compute loss, activations, gradients and norm of the next batch, for both.  If the rule has several optimizer steps
 *  in one training step, all but the last are taken, and the gradients are those for the last.  Activations are
 *  recorded if the plan computes plain training.
 *  @return OK, ERR_MEMORY, or ERR_PLAN if the model observes a tensor that no probe knows. */
enum error_code reference_gradients(struct reference *, struct error *);

/** Compute gradients after the step of the devices, whose choices of experts are known: each pass takes those that
 *  rounding explains.  For plans whose activations are not recorded: no device needs the truth in its step.
 *  @param chosen  [L, rows of the batch, k].  @return as reference_gradients. */
enum error_code reference_gradients_after(struct reference *, const int32_t *chosen, struct error *);

/**
 * Let another twin compute the last pass, with other errors; the larger distances count from now on.  For an error
 * above its bound, before reference_update: a single twin may be close to the truth by chance.  Where a tensor's errors
 * have one common cause, such as one near-zero norm that all rows share, they are one random number, however many
 * elements there are.  A correct program's, a third of a twin's, is then above that of one twin in 1 of 5 cases, and
 * above the largest of all in fewer than 1 of a million; above HOPELESS times the largest of FEW_TWINS in fewer than 1
 * of 10 million (`make check`: test_another_twin computes them).
 * @param[out] more  whether there was one; false after MOST_TWINS.
 * @return as reference_gradients.
 */
enum error_code reference_another_twin(struct reference *, bool *more, struct error *);

/** After a step of the devices whose choices of experts, in routing.theirs, differ from the truth's: compute it once
 *  more, with the devices' choices where rounding explains them.  @return as reference_gradients. */
enum error_code reference_take_routes(struct reference *, struct error *);

/** Compute without a backward pass; reference_gradients calls this.  Computes both losses and the slope.  Nothing is
 *  recorded.  @return OK or ERR_MEMORY. */
enum error_code reference_losses(struct reference *, struct error *);

/** After both losses have been compared: go on from the devices'.  So the slope is compared as what follows from two
 *  numbers.  Between two runs it has the losses' rounding times 1/(2 eps), often more than its own size.  The gradients
 *  are the slope times the direction. */
void reference_take_sides(struct reference *, const double side[2]);

/**
 * Step both, and zero their gradients.
 *
 * Adam divides each gradient by its own size.  So if a gradient is little more than rounding noise, its step is noise
 * of full size.  Which elements are affected is random, and differs between the twin and the devices.  Therefore each
 * element's step is also computed with its gradient moved up and down by the largest difference between the twin's
 * gradient and the truth's in that tensor (gradient_reach).  The larger change of the step is the element's response;
 * the norm of all responses is added to the bound.  (A low-rank optimizer spreads an element of R over a column of the
 * weights: there the response is the combined distance of both steps.)
 *
 * A step whose gradients are not finite is skipped, by the rule of loss_scale.h.  At the end of a round of replicas
 * that train apart the outer step follows: its bound has the mean of the errors of their last steps, and its own
 * rounding.
 * @return OK or ERR_MEMORY.
 */
enum error_code reference_update(struct reference *, struct error *);

/**
 * After the comparison of gradients: continue from the devices' gradients and their norm.  So the comparison of weights
 * and states is one of an optimizer step, and has its rounding alone.  Adam's reaction to a difference would be a
 * full-sized step of noise.  What was projected before has the devices' directions.  Of gradients that devices have
 * quantised, the twin's distance from the truth stays the same.  Does nothing for a step that is skipped.  Collective,
 * as reference_follow.
 */
enum error_code reference_take_gradients(struct reference *, struct trainer *, struct error *);

/**
 * If devices gather quantised weights after the step: set the weights to what the devices' masters round to, bit for
 * bit.  Masters are compared separately; a rounding error in a master can change its code, and that is correct.
 * Collective, as reference_follow.
 */
enum error_code reference_renew(struct reference *, struct trainer *, struct error *);

/** The bound for a parameter's weights: norm of (twin - truth) plus that of the last step's responses, over the norm of
 *  the truth, plus 2u.  0 after reference_renew. */
double reference_weight_bound(const struct reference *, int param);

/** The bound for a parameter's master, if it has one. */
double reference_master_bound(const struct reference *, int param);

/** Whether the truth's gradients of this step are not finite, so that the step must be skipped. */
bool reference_overflows(const struct reference *);

/**
 * Whether rounding explains that the devices have skipped a step that the truth takes, or the other way round: a twin
 * does as they do.  Then nothing of its backward pass can be compared, reference_update computes nothing, and the
 * reference goes on from the devices' weights: call reference_follow.
 * @param norm  of the devices' gradients.  @return OK, or as reference_gradients.
 */
enum error_code reference_adopts_overflow(struct reference *, double norm, struct error *);

/** The bounds for the common tensors of replicas that train apart: the anchor, the outer momentum. */
double reference_anchor_bound(const struct reference *, int param);
double reference_momentum_bound(const struct reference *, int param);

/** Loss and norm of the truth's step, over all replicas as in struct step_result. */
double reference_loss(const struct reference *);
double reference_norm(const struct reference *);

/** The bound for a parameter's gradient: norm of (twin - truth), the largest of all twins, over
 *  norm of truth, plus 2u.  Devices sum 16-bit gradients of microbatches and copies in 16 bits: then 2u for each
 *  summand, provided that none is larger than the sum. */
double reference_gradient_bound(const struct reference *, int param);

/** The bound for a state of the optimizer: norm of (twin - truth), plus that of its responses, over norm of truth, plus
 *  2u.  (If few elements dominate a state of squares, the twin may be close to the truth by chance.) */
double reference_state_bound(const struct reference *, int param, int state);

/** The bound for the global norm of all gradients, absolute: the norm of (twin - truth) over all parameters, which is
 *  an upper bound of the difference of the two norms, plus 2u. */
double reference_norm_bound(const struct reference *);

/** The bound for the loss: the mean over tokens of |twin's loss - truth's loss|, plus the rounding of the mean itself.
 *  (The difference of the two means alone could be small by chance.) */
double reference_loss_bound(const struct reference *);

/** Give a model the positions of the batch's packed samples, if the plan packs them. */
void reference_pack(const struct reference *, struct serial_run *);

/** Its two parts: the sum, over the labels that counted in the last pass, of |loss of the twin - loss of the truth|;
 *  and the bound for a mean of that many labels, from this sum and the mean. */
double reference_spread(const struct reference *);
double reference_mean_bound(const struct reference *, double spread, double mean);

/** The bounds, absolute: for the loss on one side of the weights, as for any loss; for the slope from two given losses,
 *  the rounding of their difference and quotient. */
double reference_side_bound(const struct reference *, int side);
double reference_slope_bound(const struct reference *);

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

/** The tensor of a kind of one parameter. */
struct tensor reference_tensor(const struct serial_run *, int param, enum tensor_kind);

/** Set one tensor of truth and twin to a replica's.  Collective; elsewhere than on rank 0 the reference is NULL. */
void reference_follow_one(struct reference *, int replica, struct trainer *, int param, enum tensor_kind);

/** Norm and largest element of a - b; norm of a tensor. */
double tensor_distance(struct tensor a, struct tensor b);
double tensor_farthest(struct tensor a, struct tensor b);
double norm_of(const struct reference *, struct tensor);

#endif
