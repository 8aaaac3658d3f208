/* collect.h -- the pieces of a tensor from all devices, brought to rank 0 one tensor at a time. */
#ifndef ORRERY_COLLECT_H
#define ORRERY_COLLECT_H

#include "emulated_devices/model/trainer.h"

/* Which tensor of a parameter. */
enum tensor_kind { KIND_WEIGHT, KIND_OLDER_WEIGHT, KIND_GRADIENT, KIND_STATE };     /* KIND_STATE + s: optimizer state s */

/* One device's piece: its boxes, and the elements. */
struct piece {
    int rank;
    const struct param_spec *spec;
    const struct layout *layout;
    struct tensor data;
    bool first;                         /* no earlier place of the pipeline holds it */
};

/**
 * Show rank 0 every device's piece of one parameter's tensor, in order of rank.
 * Collective over all devices; counted as CONTROL.
 * @param index  of the parameter in the model's list.
 * @param visit  called on rank 0 only.
 * @return OK.  A device that cannot send, receive or hold a piece ends the job: the others, who can, would not hear of it.
 */
enum error_code collect(struct trainer *, int index, enum tensor_kind, void (*visit)(void *context, const struct piece *), void *context,
                        struct error *);

/** The whole tensor on rank 0, from the first copy of each piece.  whole: on rank 0 its data of the model's shape; unread elsewhere. */
enum error_code collect_whole(struct trainer *, int index, enum tensor_kind, struct tensor whole, struct error *);

#endif
