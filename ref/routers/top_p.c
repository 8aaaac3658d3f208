/* router, top-p: a token goes to the fewest experts whose probabilities add up to p, so to more where the router is
 * less sure; null experts (--zero-experts) can be chosen too, and return 0.
 *
 * The weights are those of the released code: choice by choice, the probability among those experts that are nearly as
 * good, which is 1 where no other is, divided by their sum.  registry.c lists the router; ref/ops/route.c chooses by
 * its rule.
 */
#include "ref/routers/router.h"

const struct router router_top_p = {
    .name = "top-p", .description = "the fewest experts whose probabilities add up to p; null experts (Uni-MoE 2.0)",
    .formula = "keys x; s = softmax(x), the first with sum of s >= p; weights m / (sum of m + 1e-6), m = softmax at a "
               "choice over the later ones with logits within 2 near of it",
    .source = "Q. Huang et al., arXiv:2403.07652; Y. Li et al., Uni-MoE 2.0, arXiv:2511.12609; HITsz-TMG/Uni-MoE",
    .rule = { .scores = SCORES_NEAR, .normalized = true, .scale = 1, .top_p = 0.7, .near = 0.01 },
    .zero_is_null = true,
};
