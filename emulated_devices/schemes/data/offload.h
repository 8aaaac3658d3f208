/* offload.h -- copies of what lies on the slow tier.  Private to this folder.
 *
 * Weights        own_w lies there.  Three uses ahead of the one that computes, a unit's part of them is on its way from
 *                the drive to the host; two ahead, from the host to the device (shard); one ahead, it is gathered with
 *                the others' (w).
 * Gradients      own_g lies there.  After each pass a copy (sum) is made on the device, of zeros or of what is there
 *                already, the pass's gradient is added, and it goes back.  Where they are not shared, the pass itself
 *                adds to the copy.
 * Optimizer      master and state lie there.  The step goes through slices of them: while one is stepped, the next is
 *                read and the one before is written, so that there are OFFLOAD_BUFFERS on the device.  So do the anchor
 *                and the momentum of replicas, which their outer step copies slice by slice (outer.c).
 */
#ifndef ORRERY_OFFLOAD_H
#define ORRERY_OFFLOAD_H

#include "emulated_devices/schemes/data/stage.h"

enum { OFFLOAD_BUFFERS = 3 };

/* Elements of weights that the host steps, for a device that keeps them: they come by way of the tier (slices.c). */
int64_t landing_elements(const struct data_parallel *);

/* A tensor on the device: itself, or where it lies on the slow tier a copy, which is read if its numbers are wanted;
 * and back, written if they have changed.  The compute stream waits.  @return OK, ERR_MEMORY or ERR_FILE;
 * give() may follow any. */
enum error_code borrow(struct data_parallel *, enum arena_tag, struct tensor home, bool read, struct tensor *here,
                       struct error *);
enum error_code give(struct data_parallel *, struct tensor home, struct tensor here, bool written, struct error *);

/* The compute stream waits until everything is where it lies. */
void join_tier(struct data_parallel *);

#endif
