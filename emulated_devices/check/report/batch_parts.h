/* batch_parts.h -- the parts of a batch: the tokens of each microbatch on each copy of the model.
 *
 * A program makes a gradient of weights from the tokens of each part, and in 16 bits it may store that before all are
 * added up.  singles.c tells recompute/ whose each token is; singles_find.c counts the parts.
 */
#ifndef ORRERY_BATCH_PARTS_H
#define ORRERY_BATCH_PARTS_H

#include "emulated_devices/check/dump/actual.h"
#include "ref/golden/golden.h"

struct batch_parts {
    int count;                          /* 0: they are not known */
    int32_t *part;                      /* [B S] each token's, from 0; NULL: they are not known */
    bool scaled;                        /* some have a mean of their own, so their gradients are multiplied */
};

/** Find each token's part in the layout of a dump.  The caller frees `part`.
 *  @return none if the dump does not say it, or if there is no memory. */
struct batch_parts batch_parts_of(const struct golden *, const struct actual *);

#endif
