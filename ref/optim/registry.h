/* registry.h -- lists every optimizer.  A new one needs one line here; its file has the entry and the step.
 *
 * optimizer.c makes the list; files with a step include this file, and so does the CUDA backend, which knows some
 * optimizers by their steps.  No function returns an error code.
 */
#ifndef ORRERY_OPTIM_REGISTRY_H
#define ORRERY_OPTIM_REGISTRY_H

#include "ref/optim/optimizer.h"

/* The first is the default. */
#define OPTIMIZERS(X) \
    X(adamw)          \
    X(sgd)            \
    X(momentum)       \
    X(radam)          \
    X(galore)         \
    X(natural_galore) \
    X(mezo)

#define X(name) extern const struct optimizer optimizer_##name;
OPTIMIZERS(X)
#undef X

/* The entry of an optimizer, optimizer_NAME: its fields (optimizer.h), and a step that the same file defines for each
 * format. */
#define OPTIMIZER(name_, step_, ...)                                                                        \
    void step_##_f32(struct tensor w, struct tensor g, const struct tensor state[], struct step s);         \
    void step_##_f64(struct tensor w, struct tensor g, const struct tensor state[], struct step s);         \
    ONCE(const struct optimizer optimizer_##name_ = {                                                       \
        .step_f32 = step_##_f32, .step_f64 = step_##_f64, __VA_ARGS__                                       \
    };)

#endif
