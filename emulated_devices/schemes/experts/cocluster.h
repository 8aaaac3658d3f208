/* cocluster.h -- groups experts and tokens, so that most experts of a token are in its part.
 *
 * Source     Semantic parallelism (Sem-MoE), arXiv:2503.04398: clusters of tokens and experts, each assigned in turn,
 *            the other being given, until the local choices do not increase.  The paper weighs imbalance against
 *            remote choices; here imbalance has a limit, within which local choices are as many as are found
 * Called     model/group_experts.c calls these functions.
 * Starts     experts in ranges, as without grouping, and in several drawn orders; the best end counts
 * Limits     a part has as many experts of each layer as its device (block_at).  Tokens of a part, and experts of a
 *            part, have at most (1 + SLACK) of the mean of all choices, if no single one has more
 *
 * `orrery affinity` (cli/affinity.c) groups experts by it, and writes the model with its experts in that order.  No
 * training run calls it.
 */
#ifndef ORRERY_EXPERT_COCLUSTER_H
#define ORRERY_EXPERT_COCLUSTER_H

#include "ref/error.h"
#include <stdint.h>

#define COCLUSTER_SLACK 0.1

/* How often tokens of each id chose each expert: count [L,V,E]. */
struct activations { int64_t L, V, E; uint32_t *count; };

struct clusters {
    int parts;                          /* groups of tokens and experts, as asked for */
    int32_t *of_token;                  /* [V]; -1: a token that was not seen */
    int32_t *of_expert;                 /* [L,E] */
};

/** Group experts and tokens into parts.  Pure.  @return OK, for clusters_free, or ERR_MEMORY with empty clusters. */
enum error_code cocluster(const struct activations *, int parts, struct clusters *, struct error *);
void clusters_free(struct clusters *);

/** The part of the choices whose expert is in its token's part; tokens that were not seen count 1 / parts. */
double clusters_local(const struct activations *, const struct clusters *);

/** Choices of the experts of the part with most, over the mean; the largest over the layers. */
double clusters_imbalance(const struct activations *, const struct clusters *);

/** The order of a layer's experts in which each part's follow one another.  @param[out] old  [E] */
void clusters_order(const struct clusters *, int64_t E, int64_t layer, int32_t *old);

#endif
