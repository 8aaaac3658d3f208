/* keeping.h -- keeps what a run writes from other runs: a lock for each folder, and for each file that grows.
 *
 * Rank 0 writes, and so has the locks, from before the first look into a folder until the end of the run.  A process
 * has one run.  session.c, between.c, golden.c and cli/train/train.c call these functions.
 */
#ifndef ORRERY_RUN_KEEPING_H
#define ORRERY_RUN_KEEPING_H

#include "emulated_devices/run/run.h"

/** Lock what these options let the run write: --save, --log, --tensorboard, --trace, --dump.  Local, on rank 0.  Says
 *  whose void locks it has taken over.  @return as lock_take, with the flag; then nothing is locked. */
enum error_code keeping_take(const struct train_options *, struct error *);

/** In a process that will start the devices: whether one of them would be refused.  @return as lock_look. */
enum error_code keeping_look(const struct train_options *, struct error *);

/** Before a checkpoint is written: whether the locks still stand.  @return as lock_stands; OK without locks. */
enum error_code keeping_stands(struct error *);

/** Remove the locks that this process has. */
void keeping_release(void);

#endif
