/* collect.h -- the pieces of a tensor from all devices, brought to rank 0 one tensor at a time. */
#ifndef ORRERY_COLLECT_H
#define ORRERY_COLLECT_H

#include "emulated_devices/model/trainer.h"

/* What one device keeps of a tensor, or of one of its tiles:
 * of the boxes' elements, stored one box after another, a range. */
struct piece {
    int rank;
    const struct param_spec *spec;
    const struct layout *layout;
    struct interval kept;                  /* elements of the boxes; all of them where nothing is sharded over dp */
    struct tensor data;                 /* [kept.count] */
    bool first;                         /* no earlier place of the pipeline holds it */
    bool keeps_first;              /* nor another device along dp: the kept ranges of those that do make up the boxes */
    int replica;                /* whose numbers they are, where replicas train apart; 0 of what those have in common */
};

/**
 * Show rank 0 every device's piece of one parameter's tensor, or its tiles, in order of rank.
 * Collective over all devices; counted as CONTROL.
 * @param index  of the parameter in the model's list.
 * @param visit  called on rank 0 only.
 * @return OK.  A device that cannot send, receive or hold a piece ends the job: the others, who can, would not hear of
 *     it.
 */
enum error_code collect_pieces(struct trainer *, int index, enum tensor_kind,
                        void (*visit)(void *context, const struct piece *), void *context, struct error *);

/** The whole tensor on rank 0, from the first copy of each piece.  whole:
 * on rank 0 its data of the model's shape; unread elsewhere. */
enum error_code collect_whole(struct trainer *, int index, enum tensor_kind, struct tensor whole, struct error *);

/** The same of one of the replicas that train apart, by its number. */
enum error_code collect_replica(struct trainer *, int replica, int index, enum tensor_kind, struct tensor whole,
                                struct error *);

/** The weights as others are given them, in the model's format:
 * of replicas that train apart, what the last outer step made. */
enum error_code collect_model(struct trainer *, int index, struct tensor whole, struct error *);

/**
 * The numbers this device keeps of a parameter, in memory of their own.  Local.
 * @param[out] kept  which elements of its boxes they are.
 * @param[out] own   for free(own->data).
 * @return OK or ERR_MEMORY.
 */
enum error_code collect_own(const struct trainer *, const struct parameter *, enum tensor_kind, struct interval *kept,
                            struct tensor *own, struct error *);

/** Of all elements of this device's boxes of a parameter, keep those that are its own.  Local. */
void collect_keep(struct trainer *, const struct parameter *, enum tensor_kind, struct tensor piece);

#endif
