/* galore.h -- optimizers that project gradients of matrices onto few directions: GaLore and Natural GaLore.
 *
 * For a matrix W [m,n], a = min(m,n), b = max(m,n): every T steps, P [a,r] is set to the r left singular vectors of the
 * gradient with the largest singular values (the right ones if m >= n).  r is `rank`, at most a.  In every step
 *
 *     R = P^T G  [r,n]             m >= n:  R = G P  [m,r]
 *     N = Adam(R)                  natural: N = Adam(R'), R' = (lambda I + H H^T)^-1 R; column i of H is one of the
 *                                  last s of all R
 *     W = W - rate A P N           m >= n:  N P^T;  rate: lr with both bias corrections
 *     W = W - lr decay W
 *
 * P and Adam's two moments are a r + 2 b r numbers instead of Adam's 2 a b; Natural GaLore keeps s b r more.  Moments
 * and history do not change when P changes.
 *
 * The matrices of linear layers inside blocks are projected.  Some parameters here are several matrices in the
 * published model: queries, keys and values of a Llama or a GPT-J, gate and up.  They are projected matrix by matrix,
 * as there: each has its own P, moments and history.  GPT-2's queries, keys and values are one matrix there, too.  All
 * other parameters use the same AdamW without a projection.  Clipping uses the norm of the whole gradient, before the
 * projection.
 *
 * Source  the authors' code, galore-torch 1.0: adamw.py (order of a step), galore_projector.py (proj_type "std": which
 *         side, when P is found anew), and torchrun_main.py of https://github.com/jiaweizzhao/GaLore at 2cc66f88
 *         (clipping; weight_decay 0 and no clipping by default; learning rate, T and A: scripts/benchmark_c4).
 *         golden/make_galore.py runs that code.  J. Zhao et al., "GaLore: memory-efficient LLM training by gradient
 *         low-rank projection", arXiv:2403.03507; A. Das, "Natural GaLore: accelerating GaLore for memory-efficient LLM
 *         training and fine-tuning", arXiv:2410.16029
 * Called  Files of ref/optim/, schemes/data/stages/, verify/reference/ and verify/cases/ call these functions.
 * Differs from that code:
 *         - there, LAPACK decides the sign of a singular vector; moments are kept from one P to the next, so the sign
 *           matters.  Here the vector's element with the largest magnitude is positive.
 *         - the singular vectors are computed in fp64 here, in fp32 there.
 *         - the authors' script supports Llama only.  For other models we project the matrices of the same layers.
 *         - clipping multiplies by clip / norm, and matrices decay, as for all optimizers here.  PyTorch divides by the
 *           norm and 1e-6, and there all parameters decay, or none: `--as galore-torch` (conventions.h).
 *         - Natural GaLore follows the paper's algorithm, which projects one side.  The code its author released
 *           (selfsupervised-ai/Natural-GaLore, subspace_adamw.py) projects both sides, by a Tucker decomposition; the
 *           natural gradient, the history and the damping are the same there.
 */
#ifndef ORRERY_GALORE_H
#define ORRERY_GALORE_H

#include "ref/optim/optimizer.h"
#include <math.h>

/* Indices in struct optimizer.state_name of a low_rank optimizer. */
enum { LOW_RANK_EXP_AVG, LOW_RANK_EXP_AVG_SQ, LOW_RANK_PROJECTION, LOW_RANK_HISTORY };

enum { LOW_RANK_MOST_HISTORY = 64 };

/* How one matrix is projected. */
struct low_rank {
    int64_t r;                          /* 0: not projected, and the other fields have no meaning */
    int64_t a, b;                       /* its shorter and its longer side */
    bool right;                         /* tall or square: projected from the right */
};

/** How an optimizer projects an [m,n] matrix; `linear`: it is the matrix of a linear layer. */
struct low_rank low_rank_of(const struct optimizer *, const struct hyperparameters *, bool linear, int64_t m,
                            int64_t n);

/* Matrices stacked in one parameter, one below the other. */
enum { LOW_RANK_MOST_PARTS = 3 };
struct low_rank_part { int64_t first, rows; struct low_rank p; };
struct low_rank_parts { int count; struct low_rank_part part[LOW_RANK_MOST_PARTS]; };

/** How a parameter of `parts` matrices [rows[i],n] is projected; if it is not, r is 0 in its first part.  Moments that
 *  may be codes belong to one part each, projected or not: blocks of codes begin anew. */
struct low_rank_parts low_rank_parts_of(const struct optimizer *, const struct hyperparameters *, bool linear,
                                        const int64_t rows[], int parts, int64_t n);

static inline bool low_rank_projects(const struct low_rank_parts *all) { return all->part[0].p.r > 0; }

/** Elements of R of all parts. */
int64_t low_rank_reduced(const struct low_rank_parts *);

/** The rows of a part in a tensor of the parameter's shape. */
struct tensor low_rank_rows(struct low_rank_part, struct tensor);

/** Shape of a whole parameter's state; see low_rank_state.  For several parts: a vector with their states one after
 *  another. */
struct tensor low_rank_parts_state(const struct optimizer *, const struct hyperparameters *,
                                   const struct low_rank_parts *, struct tensor w, int k);

/** A part's state inside the state of its parameter. */
struct tensor low_rank_part_state(const struct optimizer *, const struct hyperparameters *,
                                  const struct low_rank_parts *, int part, struct tensor w, struct tensor state, int k);

/** Whether moments are kept as 8-bit codes (conventions.h). */
static inline bool low_rank_has_codes(const struct hyperparameters *hyper)
{
    return convention(&hyper->as, STATES) == STATES_CODED;
}

/** The shape of the numbers of state k of weights w, without data, in w's format; tensor_none if there is no such
 *  state. */
struct tensor low_rank_shape(const struct optimizer *, const struct hyperparameters *, struct low_rank, struct tensor w,
                             int k);

/** The format in which state k is held where masters have the format `wide`: that, or U8, bytes, of moments that may be
 *  codes (galore_codes.c). */
enum dtype low_rank_format(const struct optimizer *, const struct hyperparameters *, int k, enum dtype wide);

/** The shape in which state k of weights w is held, without data; tensor_none if there is no such state.  In w's
 *  format, or a vector of bytes. */
struct tensor low_rank_state(const struct optimizer *, const struct hyperparameters *, struct low_rank, struct tensor w,
                             int k);

/** The number of numbers that a parameter's state k stands for: its elements, or fewer than its bytes. */
int64_t low_rank_numbers(const struct optimizer *, const struct hyperparameters *, const struct low_rank_parts *,
                         struct tensor w, int k);

/**
 * The numbers of a parameter's state, part by part.
 * @param w     the parameter's shape and format, without data.
 * @param room  [low_rank_numbers] of w's format, for a state that is held as bytes.
 * @return the state itself, or a vector in `room`.
 */
struct tensor low_rank_read(const struct optimizer *, const struct hyperparameters *, const struct low_rank_parts *,
                            struct tensor w, int k, struct tensor state, void *room);

/** Whether step t (from 1) computes a new P. */
static inline bool low_rank_refreshes(const struct hyperparameters *hyper, int64_t t)
{
    return (t - 1) % hyper->refresh == 0;
}

/** Whether step t needs the whole gradient: for a new P, or for the norm in clipping.  Otherwise R is enough. */
static inline bool low_rank_takes_whole(const struct hyperparameters *hyper, int64_t t)
{
    return hyper->clip > 0 || low_rank_refreshes(hyper, t);
}

/** The learning rate of a step with Adam's two bias corrections.  P N is multiplied by A times this rate. */
static inline double galore_rate(struct step step)
{
    const double t = (double)step.t;
    if (convention(&step.hyper->as, BIAS_CORRECTION) == CORRECTION_NO) return step.lr;
    return step.lr * sqrt(1 - pow(step.hyper->beta2, t)) / (1 - pow(step.hyper->beta1, t));
}

/** Bytes of scratch that galore_refresh and galore_project need. */
size_t galore_scratch(struct low_rank, enum dtype);

/**
 * Compute P from a gradient: eigenvectors of G G^T, in double for any format.  A gradient that is not finite does not
 * change P.  Equal inputs give equal bits.  Rounding: a relative error e of G G^T turns vector i by about
 * e s1^2 / (si^2 - sj^2); s are the singular values, j is the nearest other one.
 * @param G        [m,n], fp32 or fp64.
 * @param[out] P       [a,r] of the same format.
 * @param[out] square  [a] squares of all singular values, largest first; NaN if the gradient is not finite; or NULL.
 * @return OK; ERR_CHECK if LAPACK does not converge: P does not change.
 */
enum error_code galore_refresh(struct low_rank, struct tensor P, struct tensor G, void *scratch, double *square,
                               struct error *);

/** Replace G by R: the first b r elements of G's memory are R, the others are zeros. */
void galore_project(struct low_rank, struct tensor G, struct tensor P, void *scratch);

/**
 * Step one whole parameter; like optimizer_step if low_rank.r is 0.
 * @param w      [m,n], fp32 or fp64.
 * @param g      in w's format, starting with R; overwritten with N.
 * @param state  [o->states] as low_rank_state says.
 */
void galore_step(const struct optimizer *, struct low_rank, struct tensor w, struct tensor g,
                 const struct tensor state[], struct step);

/** Step a parameter part by part; each part's rows of g start with its R. */
void galore_parts_step(const struct optimizer *, const struct low_rank_parts *, struct tensor w, struct tensor g,
                       const struct tensor state[], struct step);

#endif
