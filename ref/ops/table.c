/* The table of operations in one format.  A new operation is a file, a prototype in table.h and a line here. */
#include "ref/ops/table.h"

const struct ops FN(ops) = {
    .dtype = REAL, .statistics = REAL,
    .embedding_forward = FN(embedding_forward),
    .embedding_backward_weight = FN(embedding_backward_weight),
    .layernorm_forward = FN(layernorm_forward),
    .layernorm_backward_input = FN(layernorm_backward_input),
    .layernorm_backward_weight = FN(layernorm_backward_weight),
    .linear_forward = FN(linear_forward),
    .linear_backward_input = FN(linear_backward_input),
    .linear_backward_weight = FN(linear_backward_weight),
    .attention_forward = FN(attention_forward),
    .attention_backward_input = FN(attention_backward_input),
    .gelu_forward = FN(gelu_forward),
    .gelu_backward_input = FN(gelu_backward_input),
    .add = FN(add),
    .dropout = FN(dropout),
    .cross_entropy_max = FN(cross_entropy_max),
    .cross_entropy_sums = FN(cross_entropy_sums),
    .cross_entropy_loss = FN(cross_entropy_loss),
    .cross_entropy_backward = FN(cross_entropy_backward),
    .sum_of_squares = FN(sum_of_squares),
    .scale = FN(scale),
};
