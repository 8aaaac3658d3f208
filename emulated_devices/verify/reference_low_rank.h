/* reference_low_rank.h -- the one-device run of an optimizer that projects gradients (ref/optim/galore.h).
 * Private to reference.c. */
#ifndef ORRERY_REFERENCE_LOW_RANK_H
#define ORRERY_REFERENCE_LOW_RANK_H

#include "emulated_devices/verify/reference.h"
#include "ref/optim/galore.h"

/** How a plan's optimizer projects a parameter. */
struct low_rank_parts reference_low_rank(const struct plan *, const struct param_spec *);

enum project_when { BEFORE_REDUCTION, IN_THE_STEP };

/**
 * Gradients of the optimizer's step t that are finished become R, then zeros, if devices project them then: before they
 * are reduced, or in the optimizer's step.  Nothing for other optimizers.
 *
 * Where t finds new directions, a close pair of singular values amplifies rounding, in a direction that is chance: the
 * twin may be near the truth although another correct program is far.  Therefore r->turn is computed: to first order
 * vector i turns towards vector j by |u_j' dC u_i| / |si^2 - sj^2|, C = G G'.  Of dC = dG G' + G dG' that is at most
 * (si + sj) e when no element of G is off by more than e and errors are independent of the vectors; C's own rounding
 * adds lambda u s1^2.  A vector's sign is that of its element of largest size: where one of the other sign is smaller
 * by no more than the vector's turn may change, it may be reversed.  Later steps of the optimizer in the same step of
 * training project with what has been turned so.
 * @return OK, ERR_MEMORY, ERR_CHECK.
 */
enum error_code reference_project(struct reference *, int64_t t, enum project_when, struct error *);

#endif
