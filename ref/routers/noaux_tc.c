/* router, noaux-tc: a bias for each expert, which only the choice sees, balances the load instead of a loss.
 * registry.c lists the router; ref/ops/route.c chooses by its rule. */
#include "ref/routers/router.h"

const struct router router_noaux_tc = {
    .name = "noaux-tc", .description = "sigmoids and a correction bias, in the best groups (DeepSeek-V3)",
    .formula = "s = 1 / (1 + exp(-x)); keys s + bias; a group's key is the sum of its two largest; weights scale s / "
               "(sum over the chosen of s + 1e-20)",
    .source = "DeepSeek-AI, DeepSeek-V3, arXiv:2412.19437, section 2.1.2; L. Wang et al., arXiv:2408.15664",
    .rule = { .scores = SCORES_SIGMOID, .normalized = true, .scale = 2.5, .biased = true, .groups = 8, .kept = 4,
              .sums_two = true, .bias_update = BIAS_BY_SIGN, .bias_speed = 0.001 },
};
