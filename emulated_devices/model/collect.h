/* collect.h -- the pieces of a tensor from all devices, brought to rank 0 one tensor at a time.  Files of verify/,
 * model/ and run/ call these functions. */
#ifndef ORRERY_COLLECT_H
#define ORRERY_COLLECT_H

#include "emulated_devices/model/trainer.h"

/* A device keeps a piece of a tensor, or of one of its tiles: a range of the elements of its boxes, which are stored
 * one box after another. */
struct piece {
    int rank;                           /* device that has the numbers */
    const struct param_spec *spec;      /* the parameter */
    const struct layout *layout;        /* boxes of the parameter on this device */
    struct interval kept;               /* elements of the boxes; all of them where nothing is sharded over dp */
    struct tensor data;                 /* [kept.count] */
    bool first;                         /* no earlier place of the pipeline holds it */
    bool keeps_first;                   /* the first copy along dp: such ranges together are the boxes, each once */
    int replica;                        /* whose numbers, where replicas train apart; 0: common to all */
};

/**
 * Send every device's piece of one parameter's tensor, or its tiles, to rank 0, in order of rank.
 * Collective over all devices; counted as CONTROL.
 * @param index  of the parameter in the model's list.
 * A device that cannot send, receive or hold a piece ends the job, because the others would not learn of the failure.
 * @param visit  called on rank 0 only.
 */
void collect_pieces(struct trainer *, int index, enum tensor_kind, void (*visit)(void *context, const struct piece *),
                    void *context);

/** Assemble the whole tensor on rank 0 from the first copy of each piece.
 *  @param whole  on rank 0: the tensor to fill, of the model's shape; not used elsewhere. */
void collect_whole(struct trainer *, int index, enum tensor_kind, struct tensor whole);

/** Assemble the tensor of one of the replicas that train apart, by its number. */
void collect_replica(struct trainer *, int replica, int index, enum tensor_kind, struct tensor whole);

/** The weights that are written for other programs, in the model's format; of replicas that train apart, the result of
 *  the last outer step. */
void collect_model(struct trainer *, int index, struct tensor whole);

/**
 * Copy the numbers that this device keeps of a parameter.  Local.
 * @param[out] kept  which elements of its boxes they are.
 * @param[out] own   for free(own->data).
 * @return OK or ERR_MEMORY.
 */
enum error_code collect_own(const struct trainer *, const struct parameter *, enum tensor_kind, struct interval *kept,
                            struct tensor *own, struct error *);

/** Given all elements of this device's boxes of a parameter, store the weights, rounded to the model's format, and the
 *  masters if there are any.  Local.  @return OK or ERR_MEMORY. */
enum error_code collect_keep_weights(struct trainer *, const struct parameter *, struct tensor piece, struct error *);

/** Given all elements of this device's boxes of a parameter, store those that this device keeps.  Local. */
void collect_keep(struct trainer *, const struct parameter *, enum tensor_kind, struct tensor piece);

/** Put back what collect_own has given, changed, in the device's or the host's memory.  Local. */
void collect_put_own(struct trainer *, const struct parameter *, enum tensor_kind, struct tensor own);

#endif
