/* sequence_fit.h -- wrong gradients of a step as equations: what is observed is a sum over sequences.
 * Inside check/ only.
 *
 * An equation is an element of a wrong gradient, divided by what rounding may do to its tensor: so a residual of 1 is
 * the bound.  A column is a sequence: its gradient, not divided by labels.  What a mixture's balance losses add is no
 * sum over sequences; it is the last column, computed for the whole batch, with a factor of 1.
 * sequences.c makes the equations and tries what their factors may mean.
 */
#ifndef ORRERY_SEQUENCE_FIT_H
#define ORRERY_SEQUENCE_FIT_H

#include "emulated_devices/check/mistakes/own_model.h"
#include "emulated_devices/check/mistakes/sequences.h"
#include "emulated_devices/check/mistakes/whose.h"

enum {
    MOST_TENSORS = 32,                  /* of the wrong gradients: evenly from the first to the last */
    MOST_ELEMENTS = 1024,               /* of a tensor: evenly, too */
    COLUMNS = BATCHES * CUT_SEQUENCES + 1
};

/* Some elements of a wrong gradient. */
struct fit_tensor {
    const char *name, *param;
    double bound;                       /**< Relative bound of the error. */
    int64_t elements, first, rows, each;        /* rows of the equations from `first` on: every `each`-th element */
    double times;                               /* by which its equations are multiplied */
};

struct sequences_fit {
    struct own_program program;                 /**< Program under test and its model. */
    const struct batch_cuts *cuts;              /**< Places where the batch is cut into sequences. */
    struct whose_step step;                     /**< Training step whose gradients are wrong. */
    int B, columns;                             /* columns: without that of balance losses */
    bool balanced;                              /**< The model has balance losses. */
    struct fit_tensor tensor[MOST_TENSORS];     /**< Wrong gradients, [tensors]. */
    int tensors;                                /**< Entries of `tensor`. */
    int64_t rows;                               /**< Equations of all tensors. */
    double *y, *x;                              /* [rows]; [rows] of each column, then of balance losses */
    struct sequence of[COLUMNS];                /**< Sequence of each column. */
    double labels[COLUMNS];                     /* of each column's sequence that count */
    double all_labels;                          /* of the batch */
};

/* A hypothesis leaves so much of the observed numbers: of the first tensor, and of all, in bounds. */
struct fit_left { double first, all; };

/** The name of a gradient's parameter.  Pure. */
const char *fit_param(const char *gradient);

/** Make the equations of some wrong gradients, and run the passes that they need.
 *  @param fit  its program, cuts, step, B and `balanced` are set.  fit_free is due in any case.
 *  @return false: the first cannot be read, a pass cannot be run, or there is no memory. */
bool fit_make_equations(struct sequences_fit *fit, const struct wrong_gradient all[], int count);
void fit_free(struct sequences_fit *);

/** Run a whole batch, with balance losses, and weigh it as the equations are.
 *  @param there  what stands in each place; NULL: what belongs there.  @param[out] to  [rows].
 *  @return false: packed documents cannot change places, or there is no memory. */
bool fit_run_batch(const struct sequences_fit *, const struct sequence there[], double *to);

/** Make what factors of the columns give.  @param[out] made  [rows]. */
void fit_make(const struct sequences_fit *, const double a[], double *made);

/** Solve for the factors of groups of columns by least squares.  A group that depends on those before it has 0.
 *  @param group  of each column; -1: it is left out.  @param[out] a  [groups].  @return false: there is no memory. */
bool fit_solve(const struct sequences_fit *, const int group[], int groups, double a[]);

/** Measure what is left of the observed numbers. */
struct fit_left fit_left_by(const struct sequences_fit *, const double *made);

#endif
