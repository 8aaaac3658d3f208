/* scattering.h -- gradients reduced unit by unit: what waits, and what is foreseen.  Private to this folder. */
#ifndef ORRERY_SCATTERING_H
#define ORRERY_SCATTERING_H

#include "emulated_devices/schemes/data/bucket.h"

struct scattering {
    struct bucket waiting;                             /* units whose gradients are finished here and wait for others */
    struct account reduction[SHARD_LEVELS];     /* of a step, by level */
    int64_t most; /* elements of gradients that are whole here for a while, at most, and copies of what
                                                           lies on the slow tier */
};

/* Whether a unit's whole gradient stays here after a pass, which the list has at `use`, because the pass that ends the
 * same backward sweep adds to it as well: that of a tied embedding's tokens after the loss.  Not of tiles, which are
 * there so as never to have it whole. */
bool gradient_stays_after(const struct data_parallel *, int use, int unit);

/* The stage's predictions: scattering_foreseen.c. */
void scattering_foresee(struct data_parallel *);
void scattering_cost(const struct data_parallel *, enum shard_level, struct account *sum);
void scattering_passing(const struct data_parallel *, struct model_state *sum);
void scattering_moves(const struct data_parallel *, struct tier_traffic *sum);

#endif
