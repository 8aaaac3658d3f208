/* latent.h -- where the columns of latent attention go, also on devices.  check/recompute/latent.c,
 * model/run/run_latent.c, backward.c and forward.c call these functions.  No function returns an error code. */
#ifndef ORRERY_LATENT_H
#define ORRERY_LATENT_H

#include "ref/ops/ops.h"

struct model_config;

/* Where columns go, for H heads: to queries, keys and values side by side from what they come from; from attention's
 * result, to it without zeros; from the latent with the shared key, to the latent alone. */
struct latent_moves { struct column_blocks query, turned_query, key, shared_key, value, result, latent; };
struct latent_moves latent_moves_of(const struct model_config *, int64_t H);

/** Do the same backwards, for gradients. */
struct column_blocks moved_back(struct column_blocks);

#endif
