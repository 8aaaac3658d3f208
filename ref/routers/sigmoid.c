/* router, sigmoid: each expert's score is its own; experts do not compete for weight.  registry.c lists the router;
 * ref/ops/route.c chooses by its rule. */
#include "ref/routers/router.h"

const struct router router_sigmoid = {
    .name = "sigmoid", .description = "the k largest logits; weights are their sigmoids (Llama 4's scores)",
    .formula = "keys x; weights s = 1 / (1 + exp(-x))",
    .source = "M. Lewis et al., BASE layers, arXiv:2103.16716; Llama 4 in transformers",
    .rule = { .scores = SCORES_SIGMOID, .scale = 1 },
};
