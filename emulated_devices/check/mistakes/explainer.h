/* explainer.h -- tries all hypotheses of mistakes.h on a wrong result: the only door of mistakes/ for a check.
 * report/singles.c hands mistakes_explainer to recompute/, which calls it for each wrong result.  recompute/ itself
 * does not know the mistakes.  An explanation is a text in the result; there are no errors to report. */
#ifndef ORRERY_EXPLAINER_H
#define ORRERY_EXPLAINER_H

#include "emulated_devices/check/recompute/single.h"

extern const struct single_explainer mistakes_explainer;

#endif
