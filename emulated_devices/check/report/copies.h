/* copies.h -- copies that differ by more than a few roundings, where what ranks compute them from differs, too.
 *
 * A result that is what its own inputs give on each rank (singles.h) is right, however far apart its copies are.  Of
 * passes after the first a program shows gradients only, and nothing that they are computed from.  Their copies may be
 * four times as far apart as those of the first pass's gradients that are right so: in 160 right runs
 * (docs/checking/bugs.md, `order apart`) of 2 and 12 layers they were at most 2.6 times as far apart.
 * emulated_devices/cli/check.c calls it after singles_check.
 */
#ifndef ORRERY_COPIES_H
#define ORRERY_COPIES_H

#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/singles.h"

/** Findings of copies that are explained so hold. */
void copies_explain(struct check_result *, const struct singles *);

#endif
