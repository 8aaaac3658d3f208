/* half_space.h -- steps of groups of weights, some of which are to become zero: dual half-space projected gradient.
 *
 * Groups that matter least are pulled towards 0.  A step that takes such a group out of the half space
 * <new, old> >= eps |old|^2 makes it 0, and a group that is 0 stays so.  All other groups take plain steps.
 * cli/prune.c calls these functions.
 *
 * Source  T. Chen et al., "OTOv2: automatic, generic, user-friendly", arXiv:2303.06862, algorithm 2.  Scores, the pull
 *         and its limits are those of the authors' released optimizer (only_train_once, before its version 3);
 *         tests/ref/test_half_space.c holds steps to its numbers.
 */
#ifndef ORRERY_HALF_SPACE_H
#define ORRERY_HALF_SPACE_H

#include <stdbool.h>
#include <stdint.h>

struct half_space {
    double lr;                          /* learning rate */
    double pull, amplify, most;         /* lambda; what its lower limit is multiplied by; its most in multiples of it */
    double eps;                         /* of the half space */
};

/**
 * Score groups by how little they matter: half by the cosine of a group and its step, half by its small size, each
 * normalised over all groups.  Pure.
 * @param x, step  [count][size] weights; the direction that is subtracted from them.
 * @param[out] score  [count]
 */
void half_space_scores(const double *x, const double *step, int64_t count, int64_t size, double *score);

/** Mark the groups with the largest scores.  @param[out] is_pulled  [count].  @param number  how many. */
void half_space_choose(const double *score, int64_t count, int64_t number, bool *is_pulled);

/**
 * Step all groups.
 * @param x          [count][size], changed in place.
 * @param is_pulled  [count]
 * @param room       so many groups may still become 0; with 0, the pull is the least one.
 */
void half_space_step(const struct half_space *, double *x, const double *step, const bool *is_pulled, int64_t count,
                     int64_t size, int64_t room);

/** The number of groups that are 0. */
int64_t half_space_zeros(const double *x, int64_t count, int64_t size);

#endif
