/* reference_low_rank.h -- the one-device run of an optimizer that projects gradients (ref/optim/galore.h).
 * Private to this folder: reference.c, reference_bounds.c and compare.c call the functions. */
#ifndef ORRERY_REFERENCE_LOW_RANK_H
#define ORRERY_REFERENCE_LOW_RANK_H

#include "emulated_devices/verify/reference/reference.h"
#include "ref/optim/galore.h"

/** How a plan's optimizer projects a parameter. */
struct low_rank_parts reference_low_rank(const struct plan *, const struct param_spec *);

/**
 * The numbers of a parameter's state.
 * @param state  the one-device run's, a device's or another, as low_rank_state says.
 * @param room   0 to 2: which of reference->room a state that is held as bytes is read into.  Its last contents
 *               are lost.
 * @return the state itself, or a vector in that room.
 */
struct tensor reference_numbers(const struct reference *reference, int i, int k, struct tensor state, int room);

/** Make r->room, if the plan's optimizer has states that are held as bytes.  @return whether there is memory. */
bool reference_make_room(struct reference *);

enum project_when { BEFORE_REDUCTION, IN_THE_STEP };

/**
 * Replace the gradients of the optimizer's step t by R, then zeros, if devices project them at this point: before they
 * are reduced, or in the optimizer's step.  Does nothing for other optimizers.
 *
 * G is a parameter's gradient matrix, G' its transpose, and R the projection of G on the directions.  Direction i is
 * u_i, a singular vector of G; si is its singular value, and s1 the largest.  dG and dC are rounding errors of G and C.
 * In lambda u s1^2, lambda is PERTURB_LAMBDA and u the unit roundoff of fp64.
 *
 * If step t computes new directions, two close singular values amplify rounding errors, in a random direction: the twin
 * may be close to the truth although another correct program is not.  Therefore r->turn is computed.  To first order
 * vector i turns towards vector j by |u_j' dC u_i| / |si^2 - sj^2|, C = G G'.  With dC = dG G' + G dG' the numerator is
 * at most (si + sj) e if no element of G has an error above e and errors are independent of the vectors; rounding of C
 * adds lambda u s1^2.  A vector's sign is chosen by its element of largest size.  If the largest element of the other
 * sign is so close in size that the turn could exchange the two, the vector may be reversed.  Later optimizer steps in
 * the same training step project with these vectors.
 * @return OK; ERR_MEMORY; ERR_CHECK if LAPACK finds no singular vectors of a gradient.  After an error some gradients
 *         are projected and others not: the run must end.
 */
enum error_code reference_project(struct reference *, int64_t t, enum project_when, struct error *);

/** Do the same for another twin's gradients of step t, with the directions that this step has already.
 *  @return OK or ERR_MEMORY. */
enum error_code reference_project_twin(struct reference *, int64_t t, enum project_when, struct error *);

#endif
