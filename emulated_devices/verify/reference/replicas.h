/* replicas.h -- checks that pieces held by several devices are equal bit for bit: copies along dp, parameters that
 * tensor parallelism does not cut, copied keys and values, tied weights at both ends of a pipeline.  In the middle of a
 * round, replicas that train apart have different weights.
 *
 * Everything that two devices have is compared.  Parts that are cut alike (the same box, and the same elements of it)
 * are compared by hash.  If two devices have parts of a tensor that are cut differently and may overlap (shards of
 * units with different sizes, as with an uneven tp), all parts of this tensor are sent to rank 0 and compared element
 * by element, which is slower.
 *
 * Callers: watch.c beside a training loop, verify/cases/case.c, tests.
 */
#ifndef ORRERY_REPLICAS_H
#define ORRERY_REPLICAS_H

#include "emulated_devices/model/trainer.h"

/* BEFORE_OPTIMIZER compares weights and gradients; AFTER_OPTIMIZER weights and optimizer state. */
enum replicas_when { BEFORE_OPTIMIZER, AFTER_OPTIMIZER };

/**
 * Compare all copies.
 * Collective over all devices; counted as CONTROL.
 * @param[in,out] compared  on rank 0: the number of elements compared is added; each element counts once for every
 *                          device that has it, except the first.  0 at the end of a run: there were no copies.
 * @return OK; on every device ERR_CHECK, naming the first tensor whose copies differ, the devices and the moment;
 *         ERR_MEMORY.
 */
enum error_code replicas_check(struct trainer *, enum replicas_when, uint64_t *compared, struct error *);

#endif
