/* tied.h -- the gradients of an embedding that is also the output matrix, where two sections have it.
 *
 * The section of the embedding and that of the loss may cut the matrix over other devices and shards.  After each has
 * reduced its gradient, every device gets the other section's gradient of the elements that it steps, and adds it: by
 * the rule of boxing.h, each element from one device.  Both sections add two summands, so they have the same bits.
 *
 * model/sections/ calls these functions.
 */
#ifndef ORRERY_TIED_H
#define ORRERY_TIED_H

#include "emulated_devices/model/sections/boxing.h"
#include "emulated_devices/model/trainer.h"

/* From the section of the embedding to that of the loss, and back. */
struct tied { int index; struct boxing there, back; };

/** Make both boxings.  Local.  @return OK, for tied_close; NULL in *tied where no two sections have the matrix; or
 *  ERR_MEMORY. */
enum error_code tied_open(struct tied **, struct trainer *, struct error *);
void tied_close(struct tied *);

/** Add the other section's gradient.  Collective over all devices, after both are reduced.
 *  @return OK, ERR_MEMORY or ERR_COMM. */
enum error_code tied_reduce(struct tied *, struct trainer *, struct error *);

/** Add what this device sends and adds up to a ledger. */
void tied_cost(const struct tied *, const struct trainer *, struct ledger *);

#endif
