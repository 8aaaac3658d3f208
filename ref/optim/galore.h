/* galore.h -- gradients of matrices projected onto few directions: GaLore and Natural GaLore.
 *
 * Of a matrix W [m,n] with a = min(m,n), b = max(m,n), every T steps the r left singular vectors with the largest
 * singular values become P [a,r]; the right ones where m >= n.  If `rank` is more than a, r is a.  Between those steps
 * P stays.  In every step
 *
 *     R = P^T G  [r,n]            (m >= n:  R = G P  [m,r])
 *     N = Adam(R)                  natural: N = Adam(R'), R' = (lambda I + H H^T)^-1 R, H the last s of all R, each one
 *     column W = W - rate A P N           (m >= n: N P^T),  rate: lr with both bias corrections
 *     W = W - lr decay W
 *
 * P and Adam's two moments are a r + 2 b r numbers instead of Adam's 2 a b; Natural GaLore keeps s b r more.  Moments
 * and history stay as they are when P changes.
 *
 * Projected are the matrices of linear layers inside blocks.  What is one parameter here and several matrices in the
 * published model, queries, keys and values of a Llama or a GPT-J, gate and up, is projected matrix by matrix, as
 * there: each has its P, its moments and its history.  A GPT-2's queries, keys and values are one matrix there too.
 * Everything else takes the same AdamW without a projection.  Clipping scales by the norm of the whole gradient, before
 * it is projected.
 *
 * Source  the authors' code, galore-torch 1.0: adamw.py (order of a step), galore_projector.py (proj_type "std": which
 *         side, when P is found anew), and torchrun_main.py of https://github.com/jiaweizzhao/GaLore at 2cc66f88
 *         (clipping; weight_decay 0 and no clipping by default; learning rate, T and A: scripts/benchmark_c4).
 *         golden/make_galore.py runs that code.  J. Zhao et al., "GaLore: memory-efficient LLM training by gradient
 *         low-rank projection", arXiv:2403.03507; A. Das, "Natural GaLore: accelerating GaLore for memory-efficient LLM
 *         training and fine-tuning", arXiv:2410.16029
 * Differs from that code:
 *         - the sign of a singular vector is what LAPACK happens to return there; moments are carried from one P to the
 *           next, so the sign matters.  Here the vector's element of largest size is positive.
 *         - the singular vectors are computed in fp64 here, in fp32 there.
 *         - the authors' script knows Llama only.  What is projected of other models is ours: the same layers'
 *           matrices.
 *         - clipping multiplies by clip / norm, as for all optimizers here; PyTorch divides by the norm and 1e-6.
 *         - which parameters decay is the same for all optimizers here: matrices.  There all do, if any.
 *         - Natural GaLore follows the paper's algorithm, which projects one side.  The code its author released
 *           (selfsupervised-ai/Natural-GaLore, subspace_adamw.py) projects both sides, by a Tucker decomposition; the
 *           natural gradient, the history and the damping are the same there.
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
    bool right;                         /* tall or square: projected from the right */
};

/** How an optimizer projects an [m,n] matrix.  @param linear  it is a linear layer's. */
struct low_rank low_rank_of(const struct optimizer *, const struct hyperparameters *, bool linear, int64_t m,
                            int64_t n);

/* Matrices one below the other in one parameter. */
enum { LOW_RANK_MOST_PARTS = 3 };
struct low_rank_part { int64_t first, rows; struct low_rank p; };
struct low_rank_parts { int count; struct low_rank_part part[LOW_RANK_MOST_PARTS]; };

/** How a parameter of so many matrices [rows[i],n] is projected; one that is not has r 0 in its first part. */
struct low_rank_parts low_rank_parts_of(const struct optimizer *, const struct hyperparameters *, bool linear,
                                        const int64_t rows[], int parts, int64_t n);

static inline bool low_rank_projects(const struct low_rank_parts *all) { return all->part[0].p.r > 0; }

/** Elements of R of all parts together. */
int64_t low_rank_reduced(const struct low_rank_parts *);

/** The rows of a part in a tensor of the parameter's shape; all of one that is not projected. */
struct tensor low_rank_rows(struct low_rank_part, struct tensor);

/** As low_rank_state, of a whole parameter: where it has several parts a vector, their states one after another. */
struct tensor low_rank_parts_state(const struct optimizer *, const struct hyperparameters *,
                                   const struct low_rank_parts *, struct tensor w, int k);

/** A part's state in that of its parameter. */
struct tensor low_rank_part_state(const struct optimizer *, const struct hyperparameters *,
                                  const struct low_rank_parts *, int part, struct tensor w, struct tensor state, int k);

/** The shape of state k beside weights w, without data and in w's format; none where this state does not exist. */
struct tensor low_rank_state(const struct optimizer *, const struct hyperparameters *, struct low_rank, struct tensor w,
                             int k);

/** Whether step t (from 1) finds P anew. */
static inline bool low_rank_refreshes(const struct hyperparameters *h, int64_t t) { return (t - 1) % h->refresh == 0; }

/** Whether step t needs all of the gradient: to find P, or for the norm that clipping limits.
 * Otherwise R is enough. */
static inline bool low_rank_takes_whole(const struct hyperparameters *h, int64_t t)
{
    return h->clip > 0 || low_rank_refreshes(h, t);
}

/** The learning rate of a step with Adam's two bias corrections.  P N is multiplied with A times that. */
static inline double galore_rate(struct step s)
{
    const double t = (double)s.t;
    return s.lr * sqrt(1 - pow(s.hyper->beta2, t)) / (1 - pow(s.hyper->beta1, t));
}

/** Bytes of scratch that galore_refresh and galore_project need. */
size_t galore_scratch(struct low_rank, enum dtype);

/**
 * P of a gradient, in double whatever the format: eigenvectors of G G^T.  A gradient that is not finite leaves P as it
 * is.  The same bits in, the same bits out.  Rounding: a relative error e of G G^T turns vector i by about e s1^2 /
 * (si^2 - sj^2), s the singular values, j the nearest other one.
 * @param G        [m,n], fp32 or fp64.
 * @param[out] P       [a,r] of the same format.
 * @param[out] square  [a] of all singular values the squares, largest first; NULL: not wanted.  NaN if the gradient is
 *     not finite.
 * @return OK; ERR_CHECK if LAPACK does not converge, and P is as it was.
 */
enum error_code galore_refresh(struct low_rank, struct tensor P, struct tensor G, void *scratch, double *square,
                               struct error *);

/** G's memory = R, then zeros: R takes the first b r places. */
void galore_project(struct low_rank, struct tensor G, struct tensor P, void *scratch);

/**
 * Step one whole parameter: as optimizer_step where low_rank.r is 0.
 * @param w      [m,n], fp32 or fp64.
 * @param g      of w's format, beginning with R; used up: where it was is N.
 * @param state  [o->states] of the shapes of low_rank_state.
 */
void galore_step(const struct optimizer *, struct low_rank, struct tensor w, struct tensor g,
                 const struct tensor state[], struct step);

/** Step a parameter part by part.  g: in each part's rows its R. */
void galore_parts_step(const struct optimizer *, const struct low_rank_parts *, struct tensor w, struct tensor g,
                       const struct tensor state[], struct step);

#endif
