/* hidden.h -- the model's stream behind its last layer, of each token in the cache.
 *
 * A layer that predicts further tokens reads it (predictor.h).  It lies as the cache's blocks do, so a block that
 * another sequence finds has it, too.  proposer.c calls these functions, on devices that draw alone.
 */
#ifndef ORRERY_HIDDEN_H
#define ORRERY_HIDDEN_H

#include "emulated_devices/device/device.h"
#include "emulated_devices/serve/scheduler.h"

struct hidden {
    struct device *device;              /* the caller's */
    int64_t tokens;                     /* of a block */
    struct tensor kept;                 /* [blocks tokens, D] in the host's memory */
    struct tensor memory;               /* the device's memory for it */
};

/** @return OK, or ERR_MEMORY.  For hidden_close also after a failure. */
enum error_code hidden_open(struct hidden *, struct device *, const struct serving_limits *, int64_t D,
                            struct error *);
void hidden_close(struct hidden *);

/** Keep the rows of an iteration.  @param stream  [rows, D] on the device, in the order of its pieces.
 *  @return OK; ERR_INTERNAL if there are fewer rows. */
enum error_code hidden_keep(struct hidden *, const struct iteration *, struct tensor stream, struct error *);

/** Copy the rows of a sequence's tokens from the first on.  @param[out] rows  [count, D] */
void hidden_of(const struct hidden *, const struct sequence *, int64_t first, int64_t count, struct tensor rows);

#endif
