/* router, softmax: the softmax over all experts, before the choice; the weights of the chosen are not divided again.
 * registry.c lists the router; ref/ops/route.c chooses by its rule. */
#include "ref/routers/router.h"

const struct router router_softmax = {
    .name = "softmax", .description = "the k largest logits; weights are their probabilities (Switch, Qwen2-MoE)",
    .formula = "keys x; weights s = softmax(x) over all experts",
    .source = "W. Fedus et al., Switch transformers, arXiv:2101.03961; A. Yang et al., Qwen2, arXiv:2407.10671",
    .rule = { .scores = SCORES_SOFTMAX, .scale = 1 },
};
