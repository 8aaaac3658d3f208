/* copies.h -- accepts two kinds of tensors that are right by their own inputs, though the comparison objects to them.
 *
 * The first kind: copies of a tensor on several ranks differ by more than a few roundings.  The reason is that the
 * inputs of each rank differ, too.  If each rank's copy is what its own inputs give (singles.h), the tensor is right,
 * however far apart the copies are.  After the first pass a program shows gradients, but no inputs of these gradients.
 * So copies of a later gradient may be four times as far apart as the copies of right gradients in the first pass.  In
 * 160 right runs of 2 and 12 layers (docs/checking/bugs.md, `order apart`) they were 2.6 times as far apart at most.
 *
 * The second kind: the root mean square of a tensor is subnormal in fp16.  Bounds of golden files come from twins,
 * which move each subnormal number by one step.  A program that stores results inside operations rounds such a number
 * several times.  In 500 right runs without a loss scale 17 had a tensor beyond its bound, by a factor of 1.4 at most
 * (golden/clean/).  So a subnormal tensor that its own inputs give has twice the bound.
 * emulated_devices/cli/check_judged.c calls copies_explain after singles_check and before the report.  No error is
 * possible.
 */
#ifndef ORRERY_COPIES_H
#define ORRERY_COPIES_H

#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/singles.h"

/** Turn the findings DIFFERS and COPIES of such tensors into HOLDS or OPEN, and count the result anew. */
void copies_explain(struct check_result *, const struct singles *);

#endif
