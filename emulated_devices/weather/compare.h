/* compare.h -- holds every step of a weather model's devices to one device that runs the whole globe.
 *
 * Rank 0 runs ref/weather/serial.h; every device compares its pieces of every gradient and weight with those.  The
 * messages of a comparison are CONTROL, and no plan has them.  cli/train/weather.c and tests call these functions.
 */
#ifndef ORRERY_WEATHER_COMPARE_H
#define ORRERY_WEATHER_COMPARE_H

#include "emulated_devices/weather/learner.h"

/* Largest difference of a tensor that passes, over the tensor's largest number: sums of some ten thousand products in
 * another order. */
#define WEATHER_BOUND 1e-12

/* The farthest piece of one device, over the largest number of its parameter, and how many pieces it has compared. */
struct weather_finding { double off; int param; int64_t count; };

struct weather_reference {
    bool alone;                         /* it steps with its own gradients for ever; else with the devices', once they
                                         * have been compared, and then weights must have the same bits */
    struct weather_run run;             /* on rank 0 */
    double *state[OPTIMIZER_MAX_STATES];        /* on rank 0, of the optimizer */
    double *now, *next, *noise;         /* on rank 0: the batch */
    double *whole, *all;                /* of all parameters, on every device; of every device, on rank 0 */
    struct weather_finding *finding;    /* [devices] on rank 0: of a comparison */
    double loss;                        /* of the last step, on rank 0 */
    int64_t compared;                   /* tensors so far, on all devices together */
    double farthest;                    /* the largest difference of a loss, norm or gradient so far, on rank 0 */
    char what[WEATHER_NAME + 40];       /* of which tensor and step; empty: there is no difference */
    struct error verdict;               /* on rank 0: OK, or ERR_CHECK naming the first tensor that is too far */
};

/** Open it beside a learner without steps.  Collective over all devices.
 *  @return OK or the same error on every device; weather_reference_close works after both. */
enum error_code weather_reference_open(struct weather_reference *, const struct weather_learner *, struct error *);
void weather_reference_close(struct weather_reference *);

struct weather_saved;
/** Go on from a folder, as the learner has.  Collective over all devices.  @return OK or the same error on every
 *  device. */
enum error_code weather_reference_resume(struct weather_reference *, const struct weather_learner *,
                                         const struct weather_saved *, struct error *);

/** Compare loss, norm and gradients of a step, between weather_gradients and weather_update.  Collective over all
 *  devices.  @return OK or the same error on every device; a difference is a verdict. */
enum error_code weather_reference_gradients(struct weather_reference *, const struct weather_learner *,
                                            const struct weather_step *, struct error *);

/** Compare the weights after weather_update.  Collective over all devices.  @return likewise. */
enum error_code weather_reference_weights(struct weather_reference *, const struct weather_learner *,
                                          const struct weather_step *, struct error *);

#endif
