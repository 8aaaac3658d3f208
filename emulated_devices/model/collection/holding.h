/* holding.h -- which numbers of a parameter a device of a plan keeps: a pure function of plan, parameter and rank.
 *
 * Any device can ask for any other: no message is sent, and no numbers need to exist.  The answer comes from the plan's
 * layouts (tp, ep), its schedule (pp) and its shards (dp and cp).  model/collect.c and collection.c ask.
 */
#ifndef ORRERY_HOLDING_H
#define ORRERY_HOLDING_H

#include "emulated_devices/model/trainer.h"

struct holding {
    struct layout layout;               /* the device's boxes of the parameter, or of one of its tiles */
    struct interval kept;               /* elements of the boxes; all of them where nothing is sharded over dp */
    bool first;                         /* no earlier place of the pipeline holds it */
    bool keeps_first;                   /* the first copy along dp: such ranges together are the boxes, each once */
    int replica;                        /* whose numbers, where replicas train apart; 0: common to all */
};

/** Whether a rank is a device of the section, and holds a piece of the parameter.  Pure.
 *  @param section     a trainer, or its outline, on any device.
 *  @param[out] first  as in the struct. */
bool holding_exists(const struct trainer *section, int rank, const struct param_spec *, bool *first);

/** Say what a device that holds a piece of a parameter keeps of it.  Pure.
 *  @param index  of the parameter in the model's list.
 *  @return OK or ERR_MEMORY. */
enum error_code holding_of(const struct trainer *section, int rank, int index, int tile, enum tensor_kind,
                           struct holding *, struct error *);

#endif
