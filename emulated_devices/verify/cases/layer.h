/* layer.h -- runs a single layer of a model on the devices of a tp group, forward and backward, to measure its memory
 * and messages.  bench/schemes/tensor_device.c and attention.c call these functions. */
#ifndef ORRERY_VERIFY_LAYER_H
#define ORRERY_VERIFY_LAYER_H

#include "emulated_devices/model/trainer.h"

/** A plan in which P devices compute this model's first layer for one microbatch of B sequences; for layer_open.
 *  @return OK, or plan_check's error. */
enum error_code layer_plan(struct plan *, const struct model_config *, int64_t B, enum dtype, const char *tensor, int P,
                           const struct cluster *, struct error *);

/** Open a trainer whose only stage is that layer, as in the middle of a pipeline; for trainer_close.  Collective over
 *  all devices.  @return OK, or the same error on every device, with nothing to close. */
enum error_code layer_open(struct trainer *, const struct plan *, struct comm *, struct error *);

/** Forward and backward once, on random numbers of realistic size.  Collective over all devices.
 *  @return OK, or ERR_MEMORY: the other devices still wait; call comm_give_up. */
enum error_code layer_pass(struct trainer *, struct error *);

/** Peak bytes of ACTIVATIONS of a pass on this device, by formula. */
uint64_t layer_peak(const struct trainer *);

/** Return what this device sends and adds in a pass, by formula. */
struct traffic layer_cost(const struct trainer *);

#endif
