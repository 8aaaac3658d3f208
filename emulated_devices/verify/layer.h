/* layer.h -- one layer of a model on the devices of a tp group, forward and backward, with nothing before it and
 * nothing behind: to count what it takes. */
#ifndef ORRERY_VERIFY_LAYER_H
#define ORRERY_VERIFY_LAYER_H

#include "emulated_devices/model/trainer.h"

/** A plan in which this model's first layer is computed for one microbatch of B sequences by P devices; for layer_open.
 *  @return OK, or what plan_check has against it. */
enum error_code layer_plan(struct plan *, const struct model_config *, int64_t B, enum dtype, const char *tensor, int P,
                           const struct cluster *, struct error *);

/** A trainer whose stage is that layer, as one in the middle of a pipeline.  Collective over all devices.
 *  @return OK, or the same error on every device, with nothing to close; else for trainer_close. */
enum error_code layer_open(struct trainer *, const struct plan *, struct comm *, struct error *);

/** Forward and backward once, from numbers of about a model's size.  Collective over all devices.
 *  @return OK or ERR_MEMORY, after which the others still wait: comm_give_up. */
enum error_code layer_pass(struct trainer *, struct error *);

/** Peak bytes of ACTIVATIONS of a pass on this device, by formula. */
uint64_t layer_peak(const struct trainer *);

/** What this device sends and adds in a pass, by formula. */
struct traffic layer_cost(const struct trainer *);

#endif
