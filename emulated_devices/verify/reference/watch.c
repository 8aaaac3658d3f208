/* watch.c -- the one-device run, and the copies of a plan, beside a training loop.  run/session.c, run/golden.c
 * and verify/cases/case.c register the observers.  Each function is called on all devices at the same moment, and
 * returns the same error_code on all of them. */
#include "emulated_devices/verify/reference/watch.h"
#include "emulated_devices/verify/reference/encoders.h"
#include "emulated_devices/verify/reference/reference_encoders.h"
#include "emulated_devices/verify/reference/replicas.h"

/* ---- the one-device run ------------------------------------------------------------------------------------------ */

/* Before a step rank 0 computes the truth and delivers its parts. */
static enum error_code watch_begins(void *context, struct trainer *trainer, struct training_step *step,
                                    struct error *err)
{
    struct reference_watch *const watch = context;
    (void)trainer, (void)step;
    return compare_begin(watch->probes, watch->reference, err);
}

/* An encoder that differs is a verdict, no error. */
static enum error_code watch_encoders(struct reference_watch *watch, struct trainer *trainer, bool gradients,
                                      struct error *err)
{
    struct error differs;
    if (watch->encoders == NULL || trainer->plan.encoders.kinds == 0) return OK;
    const enum error_code e = encoders_compare(trainer, watch->reference, gradients, &differs);
    if (e == ERR_CHECK && !watch->comparison->failed && !watch->encoders->code) *watch->encoders = differs;
    if (e && e != ERR_CHECK) *err = differs;
    return e == ERR_CHECK ? OK : e;
}

/* The one-device run's step then takes the devices' gradients of encoders, as it has taken those of the model. */
static enum error_code watch_encoder_gradients(struct reference_watch *watch, struct trainer *trainer,
                                               struct error *err)
{
    const enum error_code e = watch_encoders(watch, trainer, true, err);
    if (!e) reference_take_encoder_gradients(trainer->comm->rank == 0 ? watch->reference : NULL, trainer);
    return e;
}

/* After the reduction and before the optimizer: gradients exist, and weights are still the old ones. */
static enum error_code watch_gradients(void *context, struct trainer *trainer, struct training_step *step,
                                       struct error *err)
{
    struct reference_watch *const watch = context;
    const enum error_code e = compare_gradients(watch->probes, watch->reference, &step->result, watch->comparison, err);
    return e ? e : watch_encoder_gradients(watch, trainer, err);
}

/* The reference can fail on rank 0 alone, so all devices agree. */
static enum error_code watch_weights(void *context, struct trainer *trainer, struct training_step *step,
                                     struct error *err)
{
    struct reference_watch *const watch = context;
    (void)step;
    enum error_code e = trainer->comm->rank == 0 ? reference_update(watch->reference, err) : OK;
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = compare_weights(trainer, watch->reference, watch->comparison, err);
    if (!e) e = watch_encoders(watch, trainer, false, err);
    if (!e && watch->follows) reference_follow(watch->reference, trainer);
    return e;
}

struct training_observer reference_observer(struct reference_watch *watch)
{
    return (struct training_observer){ .context = watch, .at = { [STEP_BEGINS] = watch_begins,
                                                        [GRADIENTS_REDUCED] = watch_gradients,
                                                        [WEIGHTS_STEPPED] = watch_weights } };
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static enum error_code copies_before(void *context, struct trainer *trainer, struct training_step *step,
                                     struct error *err)
{
    (void)step;
    return replicas_check(trainer, BEFORE_OPTIMIZER, context, err);
}

static enum error_code copies_after(void *context, struct trainer *trainer, struct training_step *step,
                                    struct error *err)
{
    (void)step;
    return replicas_check(trainer, AFTER_OPTIMIZER, context, err);
}

struct training_observer replicas_observer(uint64_t *compared)
{
    return (struct training_observer){ .context = compared, .at = { [GRADIENTS_REDUCED] = copies_before,
                                                           [WEIGHTS_STEPPED] = copies_after } };
}
