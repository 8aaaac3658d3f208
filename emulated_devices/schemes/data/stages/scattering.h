/* scattering.h -- gradients reduced unit by unit: the bucket that waits, and predictions.  Private to this folder.
 * scattering.c and scattering_foreseen.c share this file.  No function returns an error code. */
#ifndef ORRERY_SCATTERING_H
#define ORRERY_SCATTERING_H

#include "emulated_devices/schemes/data/stages/bucket.h"

struct scattering {
    struct bucket waiting;                      /* units whose gradients are finished and wait for more units */
    struct account reduction[SHARD_LEVELS];     /* of a step, by level */
    int64_t most;                               /* the most elements of gradients that are whole on this device for a
                                                 * while, plus copies of what is on the slow tier */
};

/* The result is true if a unit's whole gradient stays on the device after the list's pass `use`, which has lowered
 * `due`.  Then the last pass of the same backward sweep also adds to this unit: a tied embedding's tokens after the
 * loss.  Or the scheme reduces once, after the last microbatch.  Tiles never stay, because tiles are never whole. */
bool gradient_stays_after(const struct data_parallel *, int use, int unit);

/* The stage's predictions: scattering_foreseen.c. */
void scattering_foresee(struct data_parallel *);
void scattering_cost(const struct data_parallel *, enum shard_level, struct account *sum);
void scattering_passing(const struct data_parallel *, struct model_state *sum);
void scattering_moves(const struct data_parallel *, struct tier_traffic *sum);

#endif
