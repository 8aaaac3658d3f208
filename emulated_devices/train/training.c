/* training.c -- the loop over steps: gradients, optimizer, and observers around them.  Files of run/, train/dry_run/,
 * bench/offload/ and verify/cases/ call training_run().  Errors are those of a step or of an observer: the loop ends,
 * and the trainer can only be closed. */
#include "emulated_devices/train/training.h"
#include "emulated_devices/comm/recorder.h"
#include "ref/machine/measure.h"

/* The observers of one loop. */
struct watchers { const struct training_observer *of; int count; };

static enum error_code watchers_call(const struct watchers *watchers, enum moment moment, struct trainer *trainer,
                                     struct training_step *step, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < watchers->count && !e && !step->stops; i++) {
        const struct training_observer *const one = &watchers->of[i];
        if (one->at[moment]) e = one->at[moment](one->context, trainer, step, err);
    }
    return e;
}

static bool watchers_end(const struct watchers *watchers)
{
    bool ends = false;
    for (int i = 0; i < watchers->count; i++)
        ends = ends || (watchers->of[i].ends && watchers->of[i].ends(watchers->of[i].context));
    return ends;
}

/* Gradients or the optimizer's step, and the time that they take. */
static enum error_code training_measure(enum error_code (*part)(struct trainer *, struct step_result *, struct error *),
                                        struct trainer *trainer, struct training_step *step, struct error *err)
{
    const double seconds = measure_now(), processor = measure_processor();
    const enum error_code e = part(trainer, &step->result, err);
    step->seconds += measure_now() - seconds, step->processor += measure_processor() - processor;
    return e;
}

/* Steps of a resumed run go on counting.  Who never returns hangs here. */
static void training_begin_step(struct trainer *trainer)
{
    struct disturbed *const disturbed = &trainer->device->clock.disturbed;
    disturbed->step = trainer->step + 1;
    recorder_step(trainer->comm, trainer->step + 1);
    if (disturbed_hangs(disturbed, DISTURB_HANG)) comm_hang(trainer->comm);
}

enum error_code training_run(struct trainer *trainer, int64_t steps, const struct training_observer *observers,
                             int count, struct step_result *last, struct error *err)
{
    const struct watchers watchers = { observers, count };
    enum error_code e = OK;
    if (last) *last = (struct step_result){ 0 };
    bool stops = false;
    for (int64_t i = 0; i < steps && !e && !stops && !watchers_end(&watchers); i++) {
        struct training_step step = { .index = i };
        training_begin_step(trainer);
        e = watchers_call(&watchers, STEP_BEGINS, trainer, &step, err);
        if (!e) e = training_measure(trainer_gradients, trainer, &step, err);
        if (!e) e = watchers_call(&watchers, GRADIENTS_REDUCED, trainer, &step, err);
        if (!e && !step.stops) e = training_measure(trainer_update, trainer, &step, err);
        if (!e) e = watchers_call(&watchers, WEIGHTS_STEPPED, trainer, &step, err);
        if (!e) e = watchers_call(&watchers, STEP_ENDED, trainer, &step, err);
        if (last) *last = step.result;
        stops = step.stops;
    }
    recorder_step(trainer->comm, 0);
    return e;
}
