/* sequence.h -- lesson 09: what sequence.c defines.  README.md explains it.
 *
 * calls.c calls the functions, and check.c compares what they compute.  They
 * return no errors: course.h ends a device whose call is wrong or that has no
 * memory, and the judge shows why.  In the source of a course, braces hold
 * choices: a name, then two texts.  A student's file has one of the two.
 *
 * All devices call a function together.  There are T tokens, each a row of D
 * numbers.  Between pairs of matrices the tokens are shared: device r has
 * those of {ROWS: block_of(T, W, r)|block_of(T, W, W - 1 - r)}, or none.
 * Every function works also if every message waits for its receiver.  The
 * judge calls these functions through calls.c (`orrery learn`).
 */
#ifndef SEQUENCE_H
#define SEQUENCE_H

#include "course.h"

/* ---- tokens of all devices, and back ------------------------------------ */

/** all, T rows, becomes the tokens of all devices, in the order of the text;
 *  own has this device's.  W-1 messages, one to each other device with this
 *  device's tokens, also if there are none of them; allocates nothing. */
void gather_tokens(const struct group *, const float *own, int64_t T, int64_t D,
                   float *all);

/** own becomes this device's tokens of the sum of all devices' `all`, which
 *  stay as they are.  On device r that is its own summand, and to it is added
 *  that of device {NEXT: r - 1, then that of r - 2|r + 1, then that of r + 2},
 *  and so on, modulo W.  W-1 messages, one to each other device with its
 *  tokens, also empty ones; allocates as many numbers as `own` has. */
void reduce_tokens(const struct group *, const float *all, int64_t T, int64_t D,
                   float *own);

/* ---- a layer ------------------------------------------------------------ */

/** y becomes the norm of x, row by row: each number is divided by the root of
 *  its row's mean square, and multiplied by a weight of its column. */
static inline void norm(const float *x, const float *w, int64_t rows, int64_t D,
                        float *y)
{
    for (int64_t t = 0; t < rows; t++, x += D, y += D) {
        float squares = 0;
        for (int64_t i = 0; i < D; i++) squares += x[i] * x[i];
        const float r = 1 / sqrtf(squares / (float)D + 1e-5f);
        for (int64_t i = 0; i < D; i++) y[i] = x[i] * r * w[i];
    }
    work(4.0 * (double)rows * (double)D, 0);
}

/** From dy, the gradient of y: dx, and dw, the sum over these rows.  dx may be
 *  dy. */
static inline void norm_backward(const float *x, const float *w,
                                 const float *dy, int64_t rows, int64_t D,
                                 float *dx, float *dw)
{
    for (int64_t i = 0; i < D; i++) dw[i] = 0;
    for (int64_t t = 0; t < rows; t++, x += D, dy += D, dx += D) {
        float squares = 0, sum = 0;
        for (int64_t i = 0; i < D; i++)
            squares += x[i] * x[i], sum += dy[i] * w[i] * x[i];
        const float r = 1 / sqrtf(squares / (float)D + 1e-5f);
        const float back = sum * r * r / (float)D;
        for (int64_t i = 0; i < D; i++) {
            dw[i] += dy[i] * x[i] * r;
            dx[i] = (dy[i] * w[i] - x[i] * back) * r;
        }
    }
    work(11.0 * (double)rows * (double)D, 0);
}

/* y = x + relu(norm(x) A) B.  A is cut by columns, B by rows, as in lesson 08;
 * here this device's parts are given. */
struct layer {
    int64_t T, D;
    /* hidden numbers of a token that this device has, 0 or more */
    int64_t own;
    /* weights of the norm, D numbers, the same on all devices */
    const float *w;
    /* this device's columns and rows: [D, own], [own, D] */
    const float *A, *B;
};

/* What forward allocates and backward releases. */
struct kept {
    /* norm(x) {KEEP: of this device's tokens|of all T tokens} */
    float *normed;
    float *hidden;                      /* relu(..), T rows of `own` numbers */
};

/** From x to y, both this device's tokens.  Fills `kept`.  The norm of this
 *  device's tokens, and of no others; a gather_tokens, a reduce_tokens. */
void layer_forward(const struct group *, const struct layer *, const float *x,
                   struct kept *, float *y);

/** From dy to dx, both this device's tokens; dw is the gradient of w, with the
 *  same bits on all devices; dA and dB are those of this device's parts.
 *  Releases what is kept.  gather_tokens for {KEEP: dy and for normed|dy}, a
 *  reduce_tokens, and one all_reduce of D numbers.  dx is dy and what comes
 *  back through the norm: their sum.  At no time of both passes are more than
 *  {KEEP: |2 }T D + 2 T own + {KEEP: 2 |}n D numbers allocated, n being the
 *  number of this device's tokens. */
void layer_backward(const struct group *, const struct layer *, const float *x,
                    struct kept *, const float *dy, float *dx, float *dw,
                    float *dA, float *dB);

#endif
