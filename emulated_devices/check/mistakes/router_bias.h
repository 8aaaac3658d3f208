/* router_bias.h -- why the correction of a router after a step is wrong.
 * report/biases.c calls router_bias_explain.  Inside check/ only. */
#ifndef ORRERY_CHECK_ROUTER_BIAS_H
#define ORRERY_CHECK_ROUTER_BIAS_H

#include "ref/routers/router.h"

/* This moves the correction of a layer's experts in a step. */
struct bias_move {
    const struct router_rule *rule;     /**< Rule of the router. */
    int64_t E, zero, columns, k;        /* experts that compute, others, both; choices of a token */
    int64_t N, B, S;                    /* tokens of the batch; sequences, and tokens of each */
    int copies, micros;                 /* of the model; microbatches of each */
    double speed;                       /**< Rate at which the correction moves. */
    bool by_share;                      /* it moves by the share of choices, not by a sign */
    const int32_t *experts;             /* [N, k] the choices */
    const double *loads;                /* [columns] how often each was chosen */
    const double *before;               /* [columns] the correction before the step, */
    double *right;                      /* what it must be, */
    double *have;                       /* and what the program has */
    double near;                        /* numbers that differ by no more are the same */
};

/** Write which mistake gives what the program has.  @param[out] out  empty: none is known. */
void router_bias_explain(const struct bias_move *, char *out, size_t size);

#endif
