/* table.h -- prototypes of the optimizers' step functions, one per number format. */
#ifndef ORRERY_OPTIM_TABLE_H
#define ORRERY_OPTIM_TABLE_H

#include "ref/optim/optimizer.h"

#define STEP(name)                                                                                          \
    void name##_step_f32(struct tensor w, struct tensor g, const struct tensor state[], struct step s);     \
    void name##_step_f64(struct tensor w, struct tensor g, const struct tensor state[], struct step s);
STEP(adamw)
STEP(sgd)
STEP(momentum)
#undef STEP

#endif
