/* perturb.h -- measures how far rounding can move each tensor: a twin of the reference, with every result disturbed.
 *
 * Two correct programs differ because they round sums in different orders.  The twin is the reference with an observer
 * that multiplies every element of every computed tensor by 1 + d, |d| <= LAMBDA sqrt(n) u.  n is the number of
 * products that each element sums, u the unit roundoff.  By N. Higham and T. Mary, "A new approach to probabilistic
 * rounding error analysis", doi:10.1137/18M1226312, theorem 2.4, the error of a sum of n products is larger than that
 * with probability at most 2 exp(-LAMBDA^2 / 2).  With LAMBDA = 10 that is 4e-22: not one of the about 10^10 sums of a
 * long run on a laptop is expected to have a larger error.  So the disturbance is larger than the effect of another
 * order, and it goes through the same model.  The distance of the twin's tensors from the reference's is the bound for
 * other programs: measured, not chosen.
 *
 * A 16-bit tensor is a sum in fp32, rounded once more when it is stored.  There u is fp32's, and one step of the format
 * is added: a rounding boundary may lie between two sums that are very close, and then the stored numbers differ by one
 * step.  That is up to 2 u16 |x|; in fp16 below 2^-14 all steps are 2^-24.  Where devices add results that are each
 * stored in 16 bits, this can happen to each part and to each sum of parts (`parts`).
 *
 * With exact sums (docs/checking/exact.md) an operand of a matrix product is rounded to a grid of its whole row, so
 * a small number loses more than u of itself.  A twin of the grids moves each number of an activation, or of its
 * gradient, by up to LAMBDA half units of its row's grid.
 *
 * A zero stays one: it is a masked score, a dropped number or the padding of a window, and no rounding moves those.
 * verify/reference/reference.c and ref/golden/replay.c call these functions.
 */
#ifndef ORRERY_PERTURB_H
#define ORRERY_PERTURB_H

#include "ref/model/transformer.h"

#define PERTURB_LAMBDA 10.0

struct perturbation {
    uint64_t seed;                      /* of the random errors; another seed is another twin */
    uint64_t announced;                 /* tensors so far; the random stream of the next one */
    double lambda;                      /* 0: PERTURB_LAMBDA */
    enum dtype stored;                  /* bf16 or fp16: disturb as if results were stored in it, whatever their format;
                                         * else: as their own formats ask for */
    int parts;                          /* number of stored parts that a 16-bit result may sum, one step each; 0: one.
                                         * A sum of n terms has at most n, and no result more than two if n is less */
    int gradient_parts;                 /* the same for a 16-bit gradient of weights */
    enum exact_rule grids;              /* disturb by the grids of this rule's sums alone; or SUMS_ROUND */
    double steps;                       /* steps of 16 bits that each part is moved by; 0: one */
};

/** An observer that disturbs every tensor.  Its context is the perturbation, which must outlive it. */
struct observer perturbing_observer(struct perturbation *);

#endif
