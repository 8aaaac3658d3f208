/* table.h -- prototypes of all operations in the format being compiled, and their table. */
#ifndef ORRERY_OPS_TABLE_H
#define ORRERY_OPS_TABLE_H

#include "ref/ops/real.h"

#define T struct tensor
void FN(embedding_forward)(T Y, T ids, T W, int64_t first, bool accumulate);
void FN(embedding_backward_weight)(T dW, T dY, T ids, int64_t first);
void FN(layernorm_forward)(T Y, T mean, T rstd, T X, T w, T b, double eps);
void FN(layernorm_backward_input)(T dX, T dY, T X, T w, T mean, T rstd);
void FN(layernorm_backward_weight)(T dw, T db, T dY, T X, T mean, T rstd);
void FN(rmsnorm_forward)(T Y, T rstd, T X, T w, double base, double eps);
void FN(rmsnorm_backward_input)(T dX, T dY, T X, T w, double base, T rstd);
void FN(rmsnorm_backward_weight)(T dw, T dY, T X, T rstd);
void FN(head_norm_forward)(T Y, T rstd, T X, T w, double base, struct attention a, double eps);
void FN(head_norm_backward_input)(T dX, T dY, T X, T w, double base, T rstd, struct attention a);
void FN(head_norm_backward_weight)(T dw, T dY, T X, T rstd, struct attention a);
void FN(row_sums)(T sum, T X);
void FN(row_centred_squares)(T sum, T X, T mean);
void FN(layernorm_forward_part)(T Y, T rstd, T X, T w, double base, T b, T mean, int64_t width, double eps);
void FN(layernorm_backward_sums)(T sums, T dY, T X, T w, double base, T mean, T rstd);
void FN(layernorm_backward_part)(T dX, T dY, T X, T w, double base, T mean, T rstd, T sums, int64_t width);
void FN(linear_forward)(T Y, T X, T W, T b);
void FN(linear_forward_add)(T Y, T X, T W);
void FN(linear_forward_columns)(T Y, int64_t first, T X, T W, T b);
void FN(linear_backward_input_columns)(T dX, T dY, int64_t first, T W, bool accumulate);
void FN(linear_backward_weight_columns)(T dW, T dY, int64_t first, T X);
void FN(linear_backward_input)(T dX, T dY, T W);
void FN(column_sums)(T db, T dY);
void FN(linear_backward_weight)(T dW, T db, T dY, T X);
void FN(attention_forward)(T O, T lse, T QKV, struct attention a);
void FN(attention_backward_input)(T dQKV, T dO, T O, T lse, T QKV, struct attention a);
void FN(attention_sinks_backward)(T dsinks, T dO, T O, T lse, struct attention a);
void FN(attention_part_forward)(T O, T lse, T Q, T KV, T q_at, T k_at, struct attention a);
void FN(attention_merge)(T O, T lse, T O2, T lse2, struct attention a);
void FN(attention_delta)(T delta, T dO, T O, struct attention a);
void FN(attention_part_backward)(T dQ, T dKV, T dO, T delta, T lse, T Q, T KV, T q_at, T k_at, struct attention a);
void FN(attention_scores)(T X, int64_t first, T L, T R, T q_at, struct attention a);
void FN(attention_softmax)(T X, T lse, T q_at, struct attention a);
void FN(attention_softmax_backward)(T dX, T P, T lse, struct attention a);
void FN(attention_scores_times)(T Y, T X, int64_t first, T R, T q_at, struct attention a);
void FN(attention_scores_transposed)(T dR, T X, T L, T q_at, struct attention a);
void FN(soft_cap_forward)(T Y, T X, double cap);
void FN(soft_cap_backward_input)(T dX, T dY, T Y, double cap);
void FN(gelu_forward)(T Y, T X);
void FN(gelu_backward_input)(T dX, T dY, T X);
void FN(rotary_forward)(T QKV, T positions, T table, struct attention a);
void FN(rotary_backward_input)(T dQKV, T positions, T table, struct attention a);
void FN(swiglu_forward)(T Y, T X);
void FN(swiglu_backward_input)(T dX, T dY, T X);
void FN(geglu_forward)(T Y, T X);
void FN(geglu_backward_input)(T dX, T dY, T X);
void FN(clamped_swiglu_forward)(T Y, T X, struct clamped c);
void FN(clamped_swiglu_backward_input)(T dX, T dY, T X, struct clamped c);
void FN(columns_move)(T Y, T X, struct column_blocks, bool add);
void FN(gate_forward)(T Y, T X, T logits);
void FN(gate_backward_input)(T dX, T dlogits, T dY, T X, T logits);
void FN(silu_forward)(T Y, T X);
void FN(silu_backward_input)(T dX, T dY, T X);
void FN(streams_beside)(T X, T H);
void FN(streams_beside_backward_input)(T dH, T dX);
void FN(streams_mix_forward)(T Y, T p, T logits, T X, double smoothing);
void FN(streams_mix_backward_input)(T dX, T dlogits, T dY, T p, T X, double smoothing);
void FN(route_forward)(T weights, T experts, T logits, const struct router_rule *, const double *bias);
void FN(route_weights)(T weights, T experts, T logits, const struct router_rule *);
void FN(route_drop)(T weights, T experts, int64_t S, int64_t E, int64_t capacity, bool by_weight);
void FN(route_backward_input)(T dlogits, T dweights, T weights, T experts, T logits, const struct router_rule *);
void FN(expert_order)(T order, T counts, T experts);
void FN(gather_forward)(T rows, T X, T order, int64_t k);
void FN(gather_backward_input)(T dX, T drows, T order, int64_t k);
void FN(combine_forward)(T Y, T rows, T order, T weights);
void FN(combine_backward_input)(T drows, T dweights, T dY, T rows, T order, T weights);
void FN(identity_forward)(T Y, T X, T experts, T weights, int64_t E);
void FN(identity_backward_weights)(T dweights, T dY, T X, T experts, int64_t E);
void FN(router_losses_forward)(double *sums, T logits, T experts, int64_t counted);
void FN(router_losses_backward_input)(T dlogits, T logits, const double *slope, double z_slope);
void FN(sequence_balance_forward)(double *sum, T logits, T experts, T whole, int64_t S, const struct router_rule *);
void FN(sequence_balance_backward_input)(T dlogits, T logits, T experts, T whole, int64_t S,
                                         const struct router_rule *, double slope);
void FN(add)(T Y, T A, T B);
void FN(dropout)(T Y, T X, struct dropout d);
void FN(cross_entropy_max)(T top, T logits);
void FN(cross_entropy_sums)(T total, T hit, T logits, T top, T labels, int64_t first);
double FN(cross_entropy_loss)(T total, T top, T hit, T labels, int ignore);
void FN(cross_entropy_backward)(T dlogits, T logits, T total, T top, T labels, int64_t first, int ignore, double scale);
double FN(sum_of_squares)(T X);
void FN(scale)(T Y, double a);
#undef T

extern const struct ops FN(ops);

#endif
