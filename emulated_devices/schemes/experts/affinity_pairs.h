/* affinity_pairs.h -- counts which parts of the experts tokens need behind other tokens, and lists the pairs that say
 * more than the token alone.
 *
 * Source   Semantic parallelism (Sem-MoE), arXiv:2503.04398: tables of n-grams, of which the more confident prediction
 *          counts.  A pair is as confident as a part's share of its choices, where the token's own shares count as
 *          PAIR_PRIOR choices more: a pair that was seen seldom says what its token says (a Dirichlet prior)
 * Called   model/group_experts.c, for `orrery affinity`.  Errors: ERR_MEMORY.
 */
#ifndef ORRERY_EXPERT_AFFINITY_PAIRS_H
#define ORRERY_EXPERT_AFFINITY_PAIRS_H

#include "emulated_devices/schemes/experts/affinity.h"

/* Choices.  With 8, 32 and 128 as many are local of text not seen: 42.3 % of mixtral-tiny's on the sources of this
 * program, and 44.7 % on its documents. */
#define PAIR_PRIOR 32.0

struct counted_pair { int64_t key; uint32_t *choices; };

/* A table of pairs by key, before * V + token; it grows. */
struct pair_counts { int64_t V, room, count; int parts; struct counted_pair *of; };

/** Count choices of a token behind another in a part.  @return OK or ERR_MEMORY. */
enum error_code pair_counts_add(struct pair_counts *, int32_t before, int32_t token, int part, struct error *);

/** Add to a table of tokens the pairs whose likeliest part is another than their token's.
 *  @param share  [V, parts] of each token's choices those in a part.  @return OK or ERR_MEMORY. */
enum error_code pair_counts_list(const struct pair_counts *, const double *share, struct affinity *, struct error *);

void pair_counts_free(struct pair_counts *);

#endif
