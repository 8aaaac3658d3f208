/* router, top-k-softmax: the softmax over the chosen alone.
 *
 * This equals a softmax over all experts before the choice whose chosen entries are divided by their sum, as
 * norm_topk_prob of Qwen3's mixtures means.  registry.c lists the router; ref/ops/route.c chooses by its rule.
 */
#include "ref/routers/router.h"

const struct router router_top_k_softmax = {
    .name = "top-k-softmax", .description = "the k largest logits; weights sum to 1 (Mixtral, Qwen3-MoE)",
    .formula = "keys x; weights exp(x) / sum over the chosen of exp(x)",
    .source = "A. Q. Jiang et al., Mixtral of experts, arXiv:2401.04088; A. Yang et al., Qwen3, arXiv:2505.09388",
    .rule = { .scores = SCORES_SOFTMAX, .normalized = true, .scale = 1 },
};
