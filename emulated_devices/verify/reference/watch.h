/* watch.h -- the one-device run, and the copies of a plan, as observers of a training loop (train/training.h).
 * run/golden.c, run/session.c and cases/case.c call these functions. */
#ifndef ORRERY_REFERENCE_WATCH_H
#define ORRERY_REFERENCE_WATCH_H

#include "emulated_devices/train/training.h"
#include "emulated_devices/verify/reference/compare.h"

struct reference_watch {
    struct reference *reference;        /**< beside the devices; read on rank 0 alone */
    struct probes *probes;              /**< of this device's activations */
    struct comparison *comparison;      /**< rank 0: every loss, gradient, activation, weight and state so far */
    struct error *encoders;             /**< ERR_CHECK: the first encoder that differs, if the language model was right
                                         *   until then; NULL: encoders are not compared */
    bool follows;                       /**< after each step the reference goes on from the devices' weights */
};

/** Take each step on one device too, and compare all that the devices have.  Differences are in the comparison and do
 *  not end the loop.  @param watch  must live as long as the loop. */
struct training_observer reference_observer(struct reference_watch *watch);

/** Compare copies bit by bit before and after each optimizer step (replicas.h): a difference ends the loop.
 *  @param compared  on rank 0: the number of elements compared is added. */
struct training_observer replicas_observer(uint64_t *compared);

#endif
