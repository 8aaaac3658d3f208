/* explainer.h -- tries all hypotheses of mistakes.h on a wrong result: the only door of mistakes/ for a check. */
#ifndef ORRERY_EXPLAINER_H
#define ORRERY_EXPLAINER_H

#include "emulated_devices/check/recompute/single.h"

extern const struct single_explainer mistakes_explainer;

#endif
