/* router, group-limited: experts in groups, as they lie on devices; a token goes to experts of a few groups, and so to
 * a few devices.  registry.c lists the router; ref/ops/route.c chooses by its rule. */
#include "ref/routers/router.h"

const struct router router_group_limited = {
    .name = "group-limited", .description = "the k largest logits in the groups with the largest (DeepSeek-V2)",
    .formula = "keys s = softmax(x); a group's key is its largest; weights scale s",
    .source = "DeepSeek-AI, DeepSeek-V2, arXiv:2405.04434, section 2.1.2; group_limited_greedy in transformers",
    .rule = { .scores = SCORES_SOFTMAX, .scale = 16, .groups = 8, .kept = 3 },
};
