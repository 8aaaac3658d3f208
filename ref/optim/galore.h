/* galore.h -- gradients of matrices projected onto few directions: GaLore and Natural GaLore.
 *
 * Of a matrix W [m,n] with a = min(m,n), b = max(m,n), every T steps the r left singular vectors with the largest singular
 * values become P [a,r] (of a tall matrix, m > n, the right ones).  Between those steps P stays.  In every step
 *
 *     R = P^T G  [r,n]            (tall:  R = G P  [m,r])
 *     N = Adam(R)                  natural: N = Adam(R'), R' = (lambda I + H H^T)^-1 R, H the last s of all R, each one column
 *     W = W - lr decay W - lr A P N          (tall: N P^T)
 *
 * P and Adam's two moments are a r + 2 b r numbers instead of Adam's 2 a b; Natural GaLore keeps s b r more.  Moments and
 * history stay as they are when P changes, as in the authors' code.  A singular vector's sign is free, but moments are
 * carried from one P to the next: its element of largest size is made positive, so that all programs mean the same P.
 *
 * Projected are the matrices of linear layers inside blocks, if r < a; everything else takes plain AdamW.  What is one
 * parameter is one matrix: queries, keys and values together.  After projecting, R is all that is known of a gradient: it
 * takes the first b r places of G's memory and the rest becomes 0, so that the global norm, and clipping by it, are R's.
 *
 * Source  J. Zhao et al., "GaLore: memory-efficient LLM training by gradient low-rank projection", arXiv:2403.03507;
 *         A. Das, "Natural GaLore: accelerating GaLore for memory-efficient LLM training and fine-tuning", arXiv:2410.16029
 */
#ifndef ORRERY_GALORE_H
#define ORRERY_GALORE_H

#include "ref/optim/optimizer.h"
#include <math.h>

/* Places in struct optimizer.state_name of an optimizer that is low_rank. */
enum { LOW_RANK_EXP_AVG, LOW_RANK_EXP_AVG_SQ, LOW_RANK_PROJECTION, LOW_RANK_HISTORY };

enum { LOW_RANK_MOST_HISTORY = 64 };

/* How one matrix is projected. */
struct low_rank {
    int64_t r;                          /* 0: it is not, and the rest has no meaning */
    int64_t a, b;                       /* its shorter and its longer side */
    bool right;                         /* it is tall: the shorter side is the right one */
};

/** How an optimizer projects an [m,n] matrix.  @param linear  it is a linear layer's. */
struct low_rank low_rank_of(const struct optimizer *, const struct hyperparameters *, bool linear, int64_t m, int64_t n);

/** The shape of state k beside weights w, without data and in w's format; none where this state does not exist. */
struct tensor low_rank_state(const struct optimizer *, const struct hyperparameters *, struct low_rank, struct tensor w, int k);

/** Whether step t (from 1) finds P anew, and so needs all of the gradient. */
static inline bool low_rank_refreshes(const struct hyperparameters *h, int64_t t) { return (t - 1) % h->refresh == 0; }

/** What P N is multiplied with in a step. */
static inline double galore_rate(struct step s) { return s.hyper->galore_scale * s.lr / (1 - pow(s.hyper->beta1, (double)s.t)); }

/** Bytes of scratch that galore_refresh and galore_project need. */
size_t galore_scratch(struct low_rank, enum dtype);

/**
 * P of a gradient, in double whatever the format: eigenvectors of G G^T.  A gradient that is not finite leaves P as it is.
 * The same bits in, the same bits out.  Rounding: a relative error e of G G^T turns vector i by about e s1^2 / (si^2 - sj^2), s
 * the singular values, j the nearest other one.
 * @param G        [m,n], fp32 or fp64.
 * @param[out] P       [a,r] of the same format.
 * @param[out] square  [a] of all singular values the squares, largest first; NULL: not wanted.  NaN if the gradient is not finite.
 * @return OK; ERR_CHECK if LAPACK does not converge, and P is as it was.
 */
enum error_code galore_refresh(struct low_rank, struct tensor P, struct tensor G, void *scratch, double *square, struct error *);

/** G's memory = R, then zeros. */
void galore_project(struct low_rank, struct tensor G, struct tensor P, void *scratch);

/**
 * Step one whole parameter: as optimizer_step where low_rank.r is 0.
 * @param w      [m,n], fp32 or fp64.
 * @param g      of w's format, beginning with R; used up: where it was is N.
 * @param state  [o->states] of the shapes of low_rank_state.
 */
void galore_step(const struct optimizer *, struct low_rank, struct tensor w, struct tensor g, const struct tensor state[], struct step);

#endif
