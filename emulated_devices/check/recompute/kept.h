/* kept.h -- whether a program keeps weights or moments in 16 bits, or only shows them rounded.  Inside check/ only.
 *
 * Rounded copies of fp32 numbers do not say what the next ones are: the number behind a copy is anywhere within half a
 * spacing of it, and so the next copy is often not what the copy before it gives.  How often follows from where that
 * lies between two numbers of the format.  If 40 elements should have missed and hardly any has, each began with the
 * rounded number.  Of elements that began with the same number one counts: all of a bias that started at zero may have
 * the same number behind them.
 * steps.c adds elements of each step, and asks when all of a tensor are added.
 */
#ifndef ORRERY_SINGLE_KEPT_H
#define ORRERY_SINGLE_KEPT_H

#include "ref/numeric/dtype.h"
#include <stdbool.h>
#include <stdint.h>

enum kept_way { KEPT_ONCE, KEPT_TWICE, KEPT_WAYS };

/* These count, over some elements, how many should have missed, and how many have.  KEPT_TWICE: what is left of the
 * old number is rounded before the rest is added. */
struct kept {
    double expected, missed[KEPT_WAYS];
    bool wide;                          /* there is no such element */
    uint64_t seen[(1 << 15) / 64];      /* with which absolute number one of them began, by its bits */
};

/** Add an element: new = left + rest.  @param old  what it began with; left: of it. */
void kept_add(struct kept *, enum dtype format, double old, double left, double rest, double have);

/** Whether what is added began with rounded numbers. */
bool kept_is_clear(const struct kept *);

#endif
