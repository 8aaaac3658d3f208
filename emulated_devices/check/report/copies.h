/* copies.h -- tensors that are right by their own inputs: copies that differ by more than a few roundings, where what
 * ranks compute them from differs, too; and subnormal numbers.
 *
 * A result that is what its own inputs give on each rank (singles.h) is right, however far apart its copies are.  Of
 * passes after the first a program shows gradients only, and nothing that they are computed from.  Their copies may be
 * four times as far apart as those of the first pass's gradients that are right so: in 160 right runs
 * (docs/checking/bugs.md, `order apart`) of 2 and 12 layers they were at most 2.6 times as far apart.
 *
 * Bounds of golden files come from twins that move each subnormal number of fp16 by one step.  A program that stores
 * what is inside operations moves it several times: of 500 right runs without a loss scale 17 had a tensor beyond its
 * bound, by 1.4 at most (golden/clean/).  So a tensor that its own inputs give has twice the bound if it is subnormal.
 * emulated_devices/cli/check.c calls it after singles_check.
 */
#ifndef ORRERY_COPIES_H
#define ORRERY_COPIES_H

#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/singles.h"

/** Findings that are explained so hold. */
void copies_explain(struct check_result *, const struct singles *);

#endif
