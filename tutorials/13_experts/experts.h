/* experts.h -- lesson 13: what experts.c defines.  README.md explains it.
 *
 * A group of W devices, at most 8.  Each has tokens of its own, T of D
 * numbers; others may have more, or none.  There are E experts, and each token
 * goes to k of them: its choices.  Device r has the experts of block_of(E, W,
 * r), which may be none.  Choices of a device are numbered: choice i belongs
 * to token i / k.  The judge calls these functions through calls.c (`orrery
 * learn`).
 */
#ifndef EXPERTS_H
#define EXPERTS_H

#include "course.h"

/* ---- the router --------------------------------------------------------- */

/** choice and weight, k for each token.  Choices are the experts with the
 *  largest logits, the largest first; of two equal ones that with the
 *  {TIE: lower|higher} number comes first.  Weights are exp(logit), divided by
 *  the sum of exp over {WEIGHTS: the k chosen experts|all E experts}.  Logits
 *  may be in the thousands.  1 <= k <= E. */
void route(const float *logits, int64_t T, int E, int k, int64_t *choice,
           float *weight);

/* ---- the plan of a trip ------------------------------------------------- */

struct trip {
    /* [E]: how many rows this device sends to each expert */
    int64_t *send;
    /* of each choice: its place among the rows that leave; -1: dropped */
    int64_t *row;
    /* [W, own experts]: rows from each device for each expert of this
     * device */
    int64_t *come;
};

/** Plan a trip for n choices.  Rows leave in the order of experts.  A device
 *  goes through its choices
 *  {DROP: from the first to the last|from the last to the first};
 *  rows for an expert lie in that order, and when there are `capacity` of
 *  them, further choices of this expert are dropped.  capacity 0: there is no
 *  limit.  The devices tell each other how many rows will come: one
 *  all_to_all, of a number for each expert, which a float holds exactly. */
void plan_trip(const struct group *, int E, const int64_t *choice, int64_t n,
               int64_t capacity, struct trip *);

/* ---- the experts -------------------------------------------------------- */

/* An expert is a matrix here: it makes row M of a row. */
struct experts {
    int E, k;
    int64_t T, D;
    const float *M;                     /* [own experts, D, D] */
};

/* What forward allocates and backward releases: rows that came to this
 * device's experts, and results that came home. */
struct kept { float *came, *results; };

/** y, T rows of D numbers: the sum of weight times result over the choices of
 *  a token, from 0 and its first choice to the last; a dropped choice adds
 *  nothing.  Fills `kept`.  Two all_to_all: rows there, results back. */
void experts_forward(const struct group *, const struct experts *,
                     const struct trip *, const float *x, const float *weight,
                     struct kept *, float *y);

/** From dy: dx, in the order of forward's sums; dweight, the sum of products
 *  of dy and the result, from the first number to the last, 0 for a dropped
 *  choice; dM, of this device's experts: over rows in the order in which they
 *  came.  To the experts goes weight times dy.  Two all_to_all.  Releases what
 *  is kept.  At no time of both passes are more than (L + 2 R) D numbers
 *  allocated, when L rows leave this device and R come. */
void experts_backward(const struct group *, const struct experts *,
                      const struct trip *, const float *weight, struct kept *,
                      const float *dy, float *dx, float *dweight, float *dM);

#endif
