/* replicas.h -- pieces that several devices hold must be the same to the last bit: copies along dp, what tensor
 * parallelism does not cut, keys and values of which tensor parallelism has copies, tied weights at both ends of a
 * pipeline.  Where replicas train apart, in the middle of a round, each has its own.
 *
 * Nothing that two devices have goes uncompared.  Parts that are cut alike (the same box, and the same elements of it)
 * are compared by hash.  Of a tensor of which two devices have parts that are cut differently and may overlap (shards
 * of units whose sizes differ, as with an uneven tp) all parts go to rank 0, which compares element by element: slower,
 * but only there.
 */
#ifndef ORRERY_REPLICAS_H
#define ORRERY_REPLICAS_H

#include "emulated_devices/model/trainer.h"

/* Between the two halves of a step weights and gradients are compared, after it weights and the optimizer's state. */
enum replicas_when { BEFORE_OPTIMIZER, AFTER_OPTIMIZER };

/**
 * Compare all copies.
 * Collective over all devices; counted as CONTROL.
 * @param[in,out] compared  on rank 0 more by the elements that were compared: each once for every device that has it,
 *     but for the first.
 *                          0 at the end of a run: nothing was held twice.
 * @return OK; on every device ERR_CHECK, naming the first tensor whose copies differ, the devices and the moment;
 *     ERR_MEMORY.
 */
enum error_code replicas_check(struct trainer *, enum replicas_when, uint64_t *compared, struct error *);

#endif
