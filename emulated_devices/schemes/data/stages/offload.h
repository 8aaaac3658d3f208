/* offload.h -- copies of tensors on the slow tier.  Private to this folder.
 *
 * Weights        own_w is on the tier.  Three uses before a unit computes, its part is copied from the drive to the
 *                host; two uses before, from the host to the device (shard); one use before, it is gathered with the
 *                others' parts (w).
 * Gradients      own_g is on the tier.  After each pass a copy (sum) is made on the device, of zeros or of the current
 *                values; the pass's gradient is added, and the sum is written back.  If gradients are not sharded, the
 *                pass itself adds to the copy.
 * Optimizer      master and state are on the tier.  The step processes them in slices: while one is stepped, the next
 *                is read and the previous one is written, so there are OFFLOAD_BUFFERS slices on the device.  Anchor
 *                and momentum of replicas are also on the tier; their outer step copies them slice by slice (outer.c).
 * Called         outer.c and slices.c call these functions.
 */
#ifndef ORRERY_OFFLOAD_H
#define ORRERY_OFFLOAD_H

#include "emulated_devices/schemes/data/stages/stage.h"

enum { OFFLOAD_BUFFERS = 3 };

/* The number of weights that the host steps for a device that keeps them itself; they are sent through the tier
 * (slices.c). */
int64_t landing_elements(const struct data_parallel *);

/* `borrow` gets a tensor on the device: the tensor itself, or a copy of a tensor on the slow tier.  The copy has its
 * values only with `read`.  `give` returns the copy, and with `written` writes the values back.  The compute stream
 * waits. @return OK, ERR_MEMORY or ERR_FILE; give() may follow each of these. */
enum error_code borrow(struct data_parallel *, enum arena_tag, struct tensor home, bool read, struct tensor *here,
                       struct error *);
enum error_code give(struct data_parallel *, struct tensor home, struct tensor here, bool written, struct error *);

/* The compute stream waits until all copies to and from the tier are done. */
void join_tier(struct data_parallel *);

#endif
