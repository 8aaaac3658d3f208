/* replicas.h -- pieces that several devices hold must be the same to the last bit: copies along dp, what tensor parallelism does
 * not cut, keys and values of which tensor parallelism has copies, tied weights at both ends of a pipeline.  Pieces are compared box by
 * box: one is a copy of another if the box is the same, and the part of it that is kept, and where replicas train apart, in the middle
 * of a round, the replica too.
 */
#ifndef ORRERY_REPLICAS_H
#define ORRERY_REPLICAS_H

#include "emulated_devices/model/trainer.h"

/* Between the two halves of a step weights and gradients are compared, after it weights and the optimizer's state. */
enum replicas_when { BEFORE_OPTIMIZER, AFTER_OPTIMIZER };

/**
 * Compare all copies by hash.
 * Collective over all devices; counted as CONTROL.
 * @return OK; on every device ERR_CHECK, naming the first tensor whose copies differ, the devices and the moment; ERR_MEMORY.
 */
enum error_code replicas_check(struct trainer *, enum replicas_when, struct error *);

#endif
