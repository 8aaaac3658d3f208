/* model_copies.h -- the gradients of copies of a model, each of its own sequences, which programs no longer have once
 * copies have added theirs up.  Our model computes them, in fp64, from the golden file's weights and first batch.
 *
 * Copy K of n has the sequences that ranks have by the layout, or a run of them (cuts.h).
 * report/singles.c owns the copies; singles_read.c passes what a diagnosis asks for on to model_copies_fetch.
 */
#ifndef ORRERY_MODEL_COPIES_H
#define ORRERY_MODEL_COPIES_H

#include "ref/golden/golden.h"
#include "emulated_devices/check/mistakes/cuts.h"
#include "emulated_devices/check/recompute/single.h"

struct model_copies {
    const struct golden *golden;
    const struct single_params *params; /* of the model */
    int64_t *begin;                     /* [parameters] where each gradient begins in a copy's list; NULL: not yet */
    const struct batch_cut *cut;        /* the sequences of each copy */
    int n;
    double **grad;                      /* [n] a copy's gradients, one parameter after the other; NULL: not computed */
    double *share;                      /* [n] */
};

/** Serial.  The copies of a golden file's first batch; nothing is computed until it is asked for.  The parameters and
 *  the cut must live as long as the copies.  @param cut  NULL: there are none, n is 0. */
struct model_copies model_copies_of(const struct golden *, const struct single_params *, const struct batch_cut *cut);

/**
 * Read "copy/K/grad/NAME", K's part of the gradient, or "copy/K/share", its part of the labels that count.
 * @param[in,out] copies  computes what it has not yet.
 * @param name            the tensor's.
 * @param[out] out        F64.
 * @param[out] found      SINGLE_HAS_NOT: there is no such copy, parameter or model.
 * @param[out] err        why it failed.
 * @return OK or ERR_MEMORY.
 */
enum error_code model_copies_fetch(struct model_copies *copies, const char *name, struct tensor out,
                                   enum single_found *found, struct error *err);

void model_copies_free(struct model_copies *);

#endif
