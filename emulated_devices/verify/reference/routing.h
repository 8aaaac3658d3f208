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
 * An expert that keeps the choices with the largest weights, up to its capacity, is a second decision of this kind
 * (routing_drops.c): which choices are dropped is compared by their weights, whose error is measured in the same way.
 *
 * With groups, the device may have kept other groups.  It has kept those of its choice; beside them the best others, or
 * others that explain the choice better.  Their keys are compared like experts' keys, the sum of two with twice the
 * error.  compare.c, reference.c and routing_drops.c call these functions.
 */
#ifndef ORRERY_ROUTING_H
#define ORRERY_ROUTING_H

#include "ref/model/transformer.h"

/* The finding in one layer, in one step. */
struct routing_found {
    int64_t differ;                     /* tokens whose choice differs, or of dropped choices these */
    int64_t token;                      /* of these the one whose margin exceeds its bound most: its row */
    int32_t own, theirs;                /* the expert that the one-device run prefers there, and the device's; if the
                                         * device drops what is kept, choice_dropped(own) */
    double margin;                      /* difference of their keys, or of the weights of what is dropped and what is
                                         * kept; NaN if the device's choice is not valid */
    double bound;                       /* the largest margin that rounding explained there */
};

/* With a capacity: which choices are dropped. */
struct routing_drops {
    int64_t S, capacity;                /* choices that an expert keeps in a sequence of S rows; capacity 0: all */
    int64_t E;                          /* experts that compute, the first of a router's columns */
    bool by_weight;                     /* the largest weights are kept */
    int32_t *experts;                   /* [2,N,k] scratch */
    double *weights;                    /* [2,N,k] scratch */
    double *bound;                      /* [L] the largest margin that rounding explains */
    struct routing_found *found;        /* [L] */
};

struct routing {
    int64_t L, E, k;                    /* E: columns of a router.  L = 0: nothing to do, as the model is no mixture */
    int64_t N;                          /* tokens of this step */
    int64_t compared;                   /* tokens of a step whose choices were compared, in all layers */
    const struct transformer *truth;    /* says which choices count (transformer_judges); NULL: all do */
    struct router_rule rule;            /* of all routers */
    const double *bias;                 /* [L,E] of a biased rule, the truth's; NULL: zeros */
    double *keys;                       /* [2,E] scratch */
    int32_t *experts;                   /* [L,N,k] what the one-device run takes, and which choices it drops */
    int32_t *theirs;                    /* [L,N,k] what the devices have taken */
    double *bound;                      /* [L] the largest margin that rounding explains */
    struct routing_found *found;        /* [L] */
    struct routing_drops drops;         /* which choices a capacity drops */
    bool deciding;                      /* in the pass that takes the devices' choices */
    struct observer then;               /* called after this one, with the same tensors */
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

/** Before a step: forget what was found in the last one. */
void routing_start_step(struct routing *);

/** Whether the devices' choices, in `theirs`, are not all the truth's own. */
bool routing_differs(struct routing *);

/** Start the deciding pass: the truth takes `experts`, which are the devices' choices until its own logits forbid it.
 *  Where choices do not count, of layers that a token skips or for another optimizer step, they stay the truth's own.
 *  It ends with `deciding` = false. */
void routing_begin(struct routing *);

/** Whether a token's choice in a layer counts. */
bool routing_counts(const struct routing *, int layer, int64_t token);

/** Decide a layer's choices by the truth's logits [N,E], and add what differs to found[layer]. */
void routing_decide(struct routing *, int layer, struct tensor logits);

/** A layer's choices of the truth or of the devices: [N,k] of experts or theirs. */
static inline int32_t *routing_of_layer(const struct routing *routing, int32_t *experts, int layer)
{
    return experts + layer * routing->N * routing->k;
}

/* ---- dropped choices --------------------------------------------------------------------------------------------- */

/** @param tokens  the most tokens of a step.  @return OK, or ERR_MEMORY; call routing_drops_close in both cases. */
enum error_code routing_drops_open(struct routing_drops *, const struct model_config *, int64_t tokens, struct error *);
void routing_drops_close(struct routing_drops *);

/** After the truth's own pass. */
void routing_drops_begin(struct routing *, const struct transformer *truth);

/** With a capacity: measure a layer's bound by the router's logits [N,E] of the truth and its twin. */
void routing_drops_measure(struct routing *, int layer, struct tensor truth, struct tensor twin);

/** Whether a margin exceeds its bound by more than what has been found. */
static inline bool routing_is_worse(double margin, double bound, const struct routing_found *found)
{
    return found->differ == 0 || (!(margin * found->bound <= found->margin * bound) && found->margin == found->margin);
}

/** With a capacity, before the choices are decided: make them choices of which none is dropped. */
void routing_drops_set_aside(struct routing *, int layer);

/** After that: decide which of them are dropped, by the truth's logits [N,E], and add what differs to
 *  drops.found[layer]. */
void routing_drops_decide(struct routing *, int layer, struct tensor logits);

#endif
