/* routing.h -- a mixture's choices of experts, where rounding decides between two keys that are nearly equal.
 *
 * Serial; on the device that compares (rank 0).  A router orders experts by keys: their logits, or by a rule with a
 * bias their scores plus the bias (ref/ops/route.c; here they are computed once more).  If a device's keys are in
 * another order than the one-device run's, its token goes to another expert, and everything after it is another
 * function.  Both choices are right if rounding explains the order: the one-device run's key of the expert that it
 * prefers may exceed that of the expert that the device has chosen by at most twice the error of one key.  Then the
 * one-device run takes the device's choice, so everything after it can be compared.
 *
 * That error is measured, layer by layer: the largest difference between the twin's keys and the truth's, plus 2u of
 * the largest key.  The twin takes the truth's choices, so the difference is one of rounding alone.
 *
 * With groups, the device may have kept other groups.  It has kept those of its choice; beside them the best others.
 * Their keys are compared like experts' keys, the sum of two with twice the error.
 */
#ifndef ORRERY_ROUTING_H
#define ORRERY_ROUTING_H

#include "ref/model/transformer.h"

/* What is found in one layer, in one step. */
struct routing_found {
    int64_t differ;                     /* tokens whose choice differs */
    int64_t token;                      /* of these the one with the largest margin: its row of the batch */
    int32_t own, theirs;                /* the expert that the one-device run prefers there, and the device's */
    double margin;                      /* difference of their keys; NaN if the device's choice is not valid */
};

struct routing {
    int64_t L, E, k;                    /* E: columns of a router.  L = 0: nothing to do, as the model is no mixture */
    int64_t N;                          /* tokens of this step */
    struct router_rule rule;
    const double *bias;                 /* [L,E] of a biased rule, the truth's; NULL: zeros */
    double *keys;                       /* [2,E] scratch */
    int32_t *experts;                   /* [L,N,k] what the one-device run takes */
    int32_t *theirs;                    /* [L,N,k] what the devices have taken */
    double *bound;                      /* [L] the largest margin that rounding explains */
    struct routing_found *found;        /* [L] */
    bool deciding;                      /* in the pass that takes the devices' choices */
    struct observer then;
};

/** @param tokens  the most tokens of a step.  @return OK, or ERR_MEMORY; call routing_close in both cases. */
enum error_code routing_open(struct routing *, const struct model_config *, int64_t tokens, struct error *);
void routing_close(struct routing *);

/** An observer for the truth: calls `then`, and in the deciding pass decides each layer's choices as soon as its logits
 *  are known.  The routing must outlive it. */
struct observer routing_observer(struct routing *, struct observer then);

/** After the truth's own pass: keep its choices, which the twin takes. */
void routing_keep(struct routing *, const struct transformer *truth);

/** After the twin's pass: measure the bound of each layer. */
void routing_measure(struct routing *, const struct transformer *truth, const struct transformer *twin);

/** Whether the devices' choices, in `theirs`, are not all the truth's own. */
bool routing_differs(const struct routing *);

/** Start the deciding pass: the truth takes `experts`, which are the devices' choices until its own logits forbid it.
 *  It ends with `deciding` = false. */
void routing_begin(struct routing *);

/** Decide a layer's choices by the truth's logits [N,E], and describe what differs in found[layer]. */
void routing_decide(struct routing *, int layer, struct tensor logits);

#endif
