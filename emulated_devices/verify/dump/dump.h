/* dump.h -- `orrery train --check GOLDEN --dump FILE`: assembles the devices' tensors under golden names.
 * run/golden.c calls these functions. */
#ifndef ORRERY_VERIFY_DUMP_H
#define ORRERY_VERIFY_DUMP_H

#include "emulated_devices/verify/reference/golden_truth.h"
#include "emulated_devices/verify/reference/probes.h"

/* On rank 0; empty elsewhere. */
struct train_dump {
    struct record *all;                 /* [count] */
    int count, room;                    /* tensors so far, and for how many there is memory */
    double *loss, *norm;                /* [steps] */
};

/** After a pass: all activations and their gradients, without the loss scale, as "act/NAME" and "grad/NAME" behind a
 *  prefix.  Collective.
 *  @param prefix  "" of the first pass, "adamw/2/" of the second.  @param only  as of expected_is_dumped.
 *  @param record  the reference's, on rank 0.  @return OK or, on every device, ERR_MEMORY. */
enum error_code train_dump_activations(struct train_dump *, struct probes *, const char *prefix, const char *only,
                                       const struct recording *record, const struct step_result *, struct error *);

/** After the first step's gradients: loss, norm, and the gradients of the weights.  Collective.
 *  @return OK or, on every device, ERR_MEMORY. */
enum error_code train_dump_gradients(struct train_dump *, struct trainer *, const struct step_result *, struct error *);

/** After a later step's gradients, before its optimizer's step: the gradients of the weights.  Collective.
 *  @return OK or, on every device, ERR_MEMORY. */
enum error_code train_dump_later_gradients(struct train_dump *, struct trainer *, const struct step_result *,
                                           struct error *);

/** Weights and states.  Collective.  @param step  the step they are after, from 1; 0: the last one, without a number in
 *  their names.  @return OK or, on every device, ERR_MEMORY. */
enum error_code train_dump_weights(struct train_dump *, struct trainer *, int64_t step, struct error *);

/** After the last step: losses and norms of all steps, weights and states.  Collective. */
enum error_code train_dump_end(struct train_dump *, struct trainer *, int64_t steps, struct error *);

/** Store a step's loss and norm.  Local.  @return OK or ERR_MEMORY. */
enum error_code train_dump_step(struct train_dump *, const struct step_result *, int64_t step, struct error *);

void train_dump_free(struct train_dump *);

#endif
