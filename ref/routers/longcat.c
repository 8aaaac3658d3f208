/* router, longcat: probabilities that a bias corrects, for the choice alone. */
#include "ref/routers/router.h"

const struct router router_longcat = {
    .name = "longcat", .description = "a softmax and a correction bias (LongCat-Flash)",
    .formula = "s = softmax(x); keys s + bias; weights scale s",
    .source = "Meituan, LongCat-Flash, arXiv:2509.01322; LongcatFlashTopkRouter in transformers",
    .rule = { .scores = SCORES_SOFTMAX, .scale = 6, .biased = true },
};
