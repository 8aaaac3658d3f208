/* compare.h -- compares every device's activations, gradients, loss, weights and optimizer state with the one-device
 * run, each with its bound, in order of execution.
 *
 * Callers: watch.c at the moments of a training loop, tests.  An error above its bound is no error_code: the
 * comparison keeps the finding.  OK means that all could be compared; ERR_MEMORY, ERR_COMM and ERR_FILE end the
 * run.
 */
#ifndef ORRERY_COMPARE_H
#define ORRERY_COMPARE_H

#include "emulated_devices/model/collect.h"
#include "emulated_devices/verify/reference/comparison.h"
#include "emulated_devices/verify/reference/probes.h"
#include "emulated_devices/verify/reference/reference.h"

/**
 * Before a step: rank 0 runs the reference, and every device gets its parts of the activations.
 * Collective.  `ref` is read on rank 0 only, here and below.
 */
enum error_code compare_begin(struct probes *, struct reference *ref, struct error *);

/**
 * compare_gradients compares loss, activations and gradients; compare_weights compares weights and optimizer state, on
 * all devices that hold a piece.  Collective; the result is on rank 0.
 */
enum error_code compare_gradients(struct probes *, struct reference *ref, const struct step_result *,
                                  struct comparison *, struct error *);
enum error_code compare_weights(struct trainer *, struct reference *ref, struct comparison *, struct error *);

#endif
