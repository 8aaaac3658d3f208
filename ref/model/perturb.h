/* perturb.h -- how far rounding alone can move each tensor: a twin of the reference with every result disturbed.
 *
 * Two correct programs differ because they round sums in different orders.  The twin is the reference with an observer
 * that multiplies every element of every computed tensor by 1 + d, |d| <= LAMBDA sqrt(n) u, n being the products each
 * element sums and u the unit roundoff.  By N. Higham and T. Mary, "A new approach to probabilistic rounding error
 * analysis", doi:10.1137/18M1226312, theorem 2.4, a sum of n products is off by more than that with probability at most
 * 2 exp(-LAMBDA^2 / 2).  With LAMBDA = 10 that is 4e-22: among the 10^10 or so sums of a long run on a laptop not one
 * is expected to be off by more.  So the disturbance is larger than what a reordering does, and goes through the same
 * model; how far the twin's tensors then are from the reference's is the bound for everybody else's: measured, not
 * picked.
 *
 * A 16-bit tensor is a sum in fp32, rounded once more when it is stored.  There u is fp32's, and 2 u16 is added:
 * however close two sums are, a boundary may lie between them, and then they are stored one step, up to 2 u16, apart.
 * Where devices add up results that each has stored in 16 bits, that can happen to each part and to each sum of parts
 * (`parts`).
 */
#ifndef ORRERY_PERTURB_H
#define ORRERY_PERTURB_H

#include "ref/model/transformer.h"

#define PERTURB_LAMBDA 10.0

struct perturbation {
    uint64_t seed;
    uint64_t announced;                 /* tensors so far: the stream of the next one */
    double lambda;                      /* 0: PERTURB_LAMBDA */
    double stored;                      /* > 0: disturb as if results were stored with this unit roundoff: what a run in
                                           a narrower format may make of the same model */
    int parts;              /* a 16-bit result may be the sum of so many, each of them stored: 2 u16 for each; 0: one */
    int gradient_parts;                 /* the same of a 16-bit gradient of weights */
    double storage;                     /* > 0: instead of these 2 u16, what storing may do to each of the parts,
                                         * whatever the tensor's format */
};

/** An observer that disturbs; context: the perturbation, which must outlive it. */
struct observer perturbing_observer(struct perturbation *);

#endif
