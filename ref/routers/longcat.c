/* router, longcat: probabilities that a bias corrects, for the choice alone.  The speed of the bias is not published;
 * this one is ours.  registry.c lists the router; ref/ops/route.c chooses by its rule. */
#include "ref/routers/router.h"

const struct router router_longcat = {
    .name = "longcat", .description = "a softmax and a correction bias (LongCat-Flash); --zero-experts are identities",
    .formula = "s = softmax(x); keys s + bias; weights scale s",
    .source = "Meituan, LongCat-Flash, arXiv:2509.01322; LongcatFlashTopkRouter in transformers",
    .rule = { .scores = SCORES_SOFTMAX, .scale = 6, .biased = true, .bias_update = BIAS_BY_SHARE, .bias_speed = 0.001 },
};
