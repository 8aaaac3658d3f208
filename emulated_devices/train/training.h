/* training.h -- the loop over steps of training, and observers that it calls at four moments of each step.
 *
 *     STEP_BEGINS        nothing is computed yet                     reference run, start of a measurement
 *     GRADIENTS_REDUCED  loss and gradients of all devices           comparison of gradients, dumps
 *     WEIGHTS_STEPPED    weights after the optimizer's step          comparison of weights
 *     STEP_ENDED         all that looks at the step has looked       reports, logs, checkpoints
 *
 * Observers are called in the order of their list.
 * run/session.c, run/golden.c, verify/cases/case.c, train/dry_run/ and bench/offload/rings.c call training_run.
 */
#ifndef ORRERY_TRAINING_H
#define ORRERY_TRAINING_H

#include "emulated_devices/model/trainer.h"

enum moment { STEP_BEGINS, GRADIENTS_REDUCED, WEIGHTS_STEPPED, STEP_ENDED, MOMENTS };

/** One step of the loop, as observers see it. */
struct training_step {
    int64_t index;              /**< of this loop, from 0; trainer->step counts over resumed runs */
    struct step_result result;  /**< loss and norm from GRADIENTS_REDUCED on; the rest from WEIGHTS_STEPPED on */
    bool stops;                 /**< an observer ends the loop here: nothing more of the step is done */
    double seconds, processor;  /**< of passes and optimizer, without observers: by the clock, and of all threads of
                                 *   this process; complete from WEIGHTS_STEPPED on */
};

/** Collective over all devices.  @return OK, or the error that ends the loop. */
typedef enum error_code training_observer_fn(void *context, struct trainer *, struct training_step *, struct error *);

struct training_observer {
    void *context;              /**< first argument of each function */
    training_observer_fn *at[MOMENTS];   /**< NULL: is not called at this moment */
    bool (*ends)(const void *context);  /**< before a step: whether there is to be no further one, equal on all devices;
                                         *   NULL: never */
};

/**
 * Train some steps.
 * Collective over all devices of the trainer.
 * @param steps      at most so many; an observer may end the loop.
 * @param observers  [count]; NULL if count is 0.
 * @param[out] last  the last step's result; zeros if there was none.  May be NULL.
 * @return OK, or the error of trainer_gradients(), trainer_update() or an observer: then only close the trainer.
 */
enum error_code training_run(struct trainer *, int64_t steps, const struct training_observer *observers, int count,
                             struct step_result *last, struct error *);

#endif
