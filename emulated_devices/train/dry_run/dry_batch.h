/* dry_batch.h -- batches of packed samples for a plan that has lengths and no text.
 *
 * The samples of a step are those that a run with the same lengths and seed has.  Their ids are 0, which nobody reads.
 * All devices of a dry run are in one process and share a batch, as 1024 copies of a batch would fill any memory.
 * dry_run.c makes the batches of a crew, and alone.c those of one device.
 */
#ifndef ORRERY_DRY_BATCH_H
#define ORRERY_DRY_BATCH_H

#include "emulated_devices/model/trainer.h"

/* The batches of some steps; each is filled when the first device asks for it. */
struct dry_batches {
    const struct plan *plan;            /* that the devices train; its lengths may be NULL */
    int64_t steps;                      /* entries of `of`; 0: the plan has no lengths */
    struct shared_batch *of;            /* [steps] */
    bool *filled;                       /* [steps] */
};

/** Make room for the batches of the first steps of a plan.  Local.
 *  @return OK, for dry_batches_close; or ERR_MEMORY with nothing to close. */
enum error_code dry_batches_open(struct dry_batches *, const struct plan *, int64_t steps, struct error *);
void dry_batches_close(struct dry_batches *);

/** The source for trainer_open, as long as the batches are open; of a plan without lengths it has no tokens. */
struct batch_source dry_batches_source(struct dry_batches *);

#endif
