/* compute.h -- what a device computes: each operation of ref/ops/ops.h, done by the device's backend and charged to its
 * clock.
 *
 * The arguments after the device are those of the operation, and mean the same.  Callers never touch ->ops.  A REQUIRED
 * operation every backend with numbers has; an OPTIONAL one the host does where the backend has not (backend.h).
 * Charged are floating-point operations as in ref/ops, and each tensor once for every time it is read or written;
 * exp and tanh count as one operation, which rounds down what they cost and hardly shows beside the matrices.
 */
#ifndef ORRERY_COMPUTE_H
#define ORRERY_COMPUTE_H

#include "emulated_devices/device/backend.h"

static inline void backend_begin(struct device *d)
{
    if (d->backend->begin != NULL) d->backend->begin(d);
}

static inline void backend_end(struct device *d)
{
    if (d->backend->end != NULL) d->backend->end(d);
}

#define REQUIRED(d, operation, ...)                                         \
    do {                                                                    \
        if ((d)->ops == NULL) break;                    /* no numbers */    \
        WATCH_OPERANDS(d, operation, __VA_ARGS__);                          \
        backend_begin(d), (d)->ops->operation(__VA_ARGS__), backend_end(d); \
    } while (0)
#define OPTIONAL(d, operation, ...)                                         \
    do {                                                                    \
        if ((d)->ops == NULL || (d)->ops->operation != NULL) REQUIRED(d, operation, __VA_ARGS__); \
        else {                                                              \
            WATCH_OPERANDS(d, operation, __VA_ARGS__);                      \
            generic_##operation(d, __VA_ARGS__);                            \
        }                                                                   \
    } while (0)

/* Charge an elementwise operation: `tensors` tensors of the size of X, `flops_each` operations per element. */
static inline void dev_charge(struct device *d, const char *what, struct tensor X, int tensors, double flops_each)
{
    device_charge(d, what, elementwise_cost(tensor_count(X), tensors, flops_each, X.dtype));
}

/* A pass of Y = X W' for N rows of X and Y: the three take the same operations and bytes, in other shapes. */
static inline struct op_cost product_cost(enum product_pass pass, int64_t N, int64_t I, int64_t O, enum dtype t)
{
    struct op_cost c = linear_cost(N, I, O, t);
    if (pass == PRODUCT_INPUT) c.columns = I, c.depth = O;
    if (pass == PRODUCT_WEIGHT) c.rows = O, c.columns = I, c.depth = N;
    return c;
}

static inline void dev_charge_linear(struct device *d, enum product_pass pass, struct tensor rows, struct tensor W)
{
    static const char *const what[] = { "linear forward", "linear backward input", "linear backward weight" };
    device_charge(d, what[pass], product_cost(pass, tensor_rows(rows), tensor_cols(W), tensor_rows(W), d->dtype));
}

/* To another format: Y = X, rounded. */
static inline void dev_round(struct device *d, struct tensor Y, struct tensor X)
{
    device_convert(d, Y, X);
    dev_charge(d, "round", X, 2, 1);
}

/* To codes, and back. */
static inline void dev_quantise(struct device *d, void *code, struct tensor X, struct block_format f)
{
    device_quantise(d, code, X, f);
    dev_charge(d, "quantise", X, 2, 3);
}

static inline void dev_dequantise(struct device *d, struct tensor Y, const void *code, struct block_format f)
{
    device_dequantise(d, Y, code, f);
    dev_charge(d, "dequantise", Y, 2, 1);
}

/* ---- embedding: reads the rows it looks up, not the whole table ------------------------------------------------ */

static inline void dev_embedding_forward(struct device *d, struct tensor Y, struct tensor ids, struct tensor W,
                                         int64_t first, bool accumulate)
{
    REQUIRED(d, embedding_forward, Y, ids, W, first, accumulate);
    dev_charge(d, "embedding forward", Y, accumulate ? 3 : 2, accumulate ? 1 : 0);
}

static inline void dev_embedding_backward_weight(struct device *d, struct tensor dW, struct tensor dY,
                                                 struct tensor ids, int64_t first)
{
    REQUIRED(d, embedding_backward_weight, dW, dY, ids, first);
    dev_charge(d, "embedding backward weight", dY, 3, 1);
}

/* ---- layernorm -------------------------------------------------------------------------------------------------- */

static inline void dev_layernorm_forward(struct device *d, struct tensor Y, struct tensor mean, struct tensor rstd,
                                         struct tensor X, struct tensor w, struct tensor b, double eps)
{
    REQUIRED(d, layernorm_forward, Y, mean, rstd, X, w, b, eps);
    dev_charge(d, "layernorm forward", X, 2, 8);
}

static inline void dev_layernorm_backward_input(struct device *d, struct tensor dX, struct tensor dY, struct tensor X,
                                                struct tensor w, struct tensor mean, struct tensor rstd)
{
    REQUIRED(d, layernorm_backward_input, dX, dY, X, w, mean, rstd);
    dev_charge(d, "layernorm backward input", X, 3, 13);
}

static inline void dev_layernorm_backward_weight(struct device *d, struct tensor dw, struct tensor db, struct tensor dY,
                                                 struct tensor X, struct tensor mean, struct tensor rstd)
{
    REQUIRED(d, layernorm_backward_weight, dw, db, dY, X, mean, rstd);
    dev_charge(d, "layernorm backward weight", X, 2, 5);
}

/* In pieces; statistics of a row weigh little beside the row. */
static inline void dev_row_sums(struct device *d, struct tensor sum, struct tensor X)
{
    OPTIONAL(d, row_sums, sum, X);
    dev_charge(d, "row sums", X, 1, 1);
}

static inline void dev_row_centred_squares(struct device *d, struct tensor sum, struct tensor X, struct tensor mean)
{
    OPTIONAL(d, row_centred_squares, sum, X, mean);
    dev_charge(d, "row squares", X, 1, 3);
}

static inline void dev_layernorm_forward_part(struct device *d, struct tensor Y, struct tensor rstd, struct tensor X,
                                              struct tensor w, double base, struct tensor b, struct tensor mean,
                                              int64_t width, double eps)
{
    OPTIONAL(d, layernorm_forward_part, Y, rstd, X, w, base, b, mean, width, eps);
    dev_charge(d, "layernorm forward", X, 2, 4);
}

static inline void dev_layernorm_backward_sums(struct device *d, struct tensor sums, struct tensor dY, struct tensor X,
                                               struct tensor w, double base, struct tensor mean, struct tensor rstd)
{
    OPTIONAL(d, layernorm_backward_sums, sums, dY, X, w, base, mean, rstd);
    dev_charge(d, "layernorm backward sums", X, 2, 6);
}

static inline void dev_layernorm_backward_part(struct device *d, struct tensor dX, struct tensor dY, struct tensor X,
                                               struct tensor w, double base, struct tensor mean, struct tensor rstd,
                                               struct tensor sums, int64_t width)
{
    OPTIONAL(d, layernorm_backward_part, dX, dY, X, w, base, mean, rstd, sums, width);
    dev_charge(d, "layernorm backward input", X, 3, 7);
}

/* ---- rmsnorm ----------------------------------------------------------------------------------------------------- */

static inline void dev_rmsnorm_forward(struct device *d, struct tensor Y, struct tensor rstd, struct tensor X,
                                       struct tensor w, double base, double eps)
{
    REQUIRED(d, rmsnorm_forward, Y, rstd, X, w, base, eps);
    dev_charge(d, "rmsnorm forward", X, 2, 4);
}

static inline void dev_rmsnorm_backward_input(struct device *d, struct tensor dX, struct tensor dY, struct tensor X,
                                              struct tensor w, double base, struct tensor rstd)
{
    REQUIRED(d, rmsnorm_backward_input, dX, dY, X, w, base, rstd);
    dev_charge(d, "rmsnorm backward input", X, 3, 9);
}

static inline void dev_rmsnorm_backward_weight(struct device *d, struct tensor dw, struct tensor dY, struct tensor X,
                                               struct tensor rstd)
{
    REQUIRED(d, rmsnorm_backward_weight, dw, dY, X, rstd);
    dev_charge(d, "rmsnorm backward weight", X, 2, 3);
}

/* Of each head of queries and keys. */
static inline void dev_head_norm_forward(struct device *d, struct tensor Y, struct tensor rstd, struct tensor X,
                                         struct tensor w, double base, struct attention a, double eps)
{
    OPTIONAL(d, head_norm_forward, Y, rstd, X, w, base, a, eps);
    dev_charge(d, "head norm forward", X, 2, 4);
}

static inline void dev_head_norm_backward_input(struct device *d, struct tensor dX, struct tensor dY, struct tensor X,
                                                struct tensor w, double base, struct tensor rstd, struct attention a)
{
    OPTIONAL(d, head_norm_backward_input, dX, dY, X, w, base, rstd, a);
    dev_charge(d, "head norm backward input", X, 3, 9);
}

static inline void dev_head_norm_backward_weight(struct device *d, struct tensor dw, struct tensor dY, struct tensor X,
                                                 struct tensor rstd, struct attention a)
{
    OPTIONAL(d, head_norm_backward_weight, dw, dY, X, rstd, a);
    dev_charge(d, "head norm backward weight", X, 2, 3);
}

/* ---- linear ------------------------------------------------------------------------------------------------------ */

static inline void dev_linear_forward(struct device *d, struct tensor Y, struct tensor X, struct tensor W,
                                      struct tensor b)
{
    REQUIRED(d, linear_forward, Y, X, W, b);
    dev_charge_linear(d, PRODUCT_FORWARD, X, W);
}

static inline void dev_linear_forward_add(struct device *d, struct tensor Y, struct tensor X, struct tensor W)
{
    OPTIONAL(d, linear_forward_add, Y, X, W);
    dev_charge_linear(d, PRODUCT_FORWARD, X, W);
}

static inline void dev_linear_backward_input(struct device *d, struct tensor dX, struct tensor dY, struct tensor W)
{
    REQUIRED(d, linear_backward_input, dX, dY, W);
    dev_charge_linear(d, PRODUCT_INPUT, dY, W);
}

static inline void dev_column_sums(struct device *d, struct tensor db, struct tensor dY)
{
    OPTIONAL(d, column_sums, db, dY);
    dev_charge(d, "column sums", dY, 1, 1);
}

static inline void dev_linear_backward_weight(struct device *d, struct tensor dW, struct tensor db, struct tensor dY,
                                              struct tensor X)
{
    REQUIRED(d, linear_backward_weight, dW, db, dY, X);
    dev_charge_linear(d, PRODUCT_WEIGHT, dY, dW);
}

/* A list of products is one operation.  Nothing is charged for one without rows. */
static inline void dev_products(struct device *d, enum product_pass pass, const struct device_product *list, int count)
{
    static const char *const what[] = { "products forward", "products backward input", "products backward weight" };
    struct op_cost sum = { .flops = 0 };
    for (int i = 0; i < count; i++) {
        const int64_t rows = tensor_rows(list[i].Y);
        const struct tensor W = list[i].W;
        if (rows == 0) continue;
        const struct op_cost one = linear_cost(rows, tensor_cols(W), tensor_rows(W), d->dtype);
        sum.flops += one.flops, sum.bytes += one.bytes;
    }
    if (sum.bytes == 0) return;
    for (int i = 0; i < count; i++) WATCH_OPERANDS(d, products, list[i].Y, list[i].X, list[i].W, list[i].b);
    device_products(d, pass, list, count);
    device_charge(d, what[pass], sum);
}

/* Rows first .. of a matrix. */
static inline void dev_linear_forward_columns(struct device *d, struct tensor Y, int64_t first, struct tensor X,
                                              struct tensor W, struct tensor b)
{
    OPTIONAL(d, linear_forward_columns, Y, first, X, W, b);
    dev_charge_linear(d, PRODUCT_FORWARD, X, W);
}

static inline void dev_linear_backward_input_columns(struct device *d, struct tensor dX, struct tensor dY,
                                                     int64_t first, struct tensor W, bool accumulate)
{
    OPTIONAL(d, linear_backward_input_columns, dX, dY, first, W, accumulate);
    dev_charge_linear(d, PRODUCT_INPUT, dY, W);
}

static inline void dev_linear_backward_weight_columns(struct device *d, struct tensor dW, struct tensor dY,
                                                      int64_t first, struct tensor X)
{
    OPTIONAL(d, linear_backward_weight_columns, dW, dY, first, X);
    dev_charge_linear(d, PRODUCT_WEIGHT, dY, dW);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static inline void dev_attention_forward(struct device *d, struct tensor O, struct tensor lse, struct tensor QKV,
                                         struct attention a)
{
    REQUIRED(d, attention_forward, O, lse, QKV, a);
    device_charge(d, "attention forward", attention_forward_cost(tensor_rows(QKV), a, d->dtype));
}

static inline void dev_attention_backward_input(struct device *d, struct tensor dQKV, struct tensor dO, struct tensor O,
                                                struct tensor lse, struct tensor QKV, struct attention a)
{
    REQUIRED(d, attention_backward_input, dQKV, dO, O, lse, QKV, a);
    device_charge(d, "attention backward input", attention_backward_cost(tensor_rows(QKV), a, d->dtype));
}

/* In parts; pairs: of queries and keys that see each other, over all sequences. */
static inline void dev_attention_part_forward(struct device *d, struct tensor O, struct tensor lse, struct tensor Q,
                                              struct tensor KV, struct tensor q_at, struct tensor k_at,
                                              struct attention a, double pairs)
{
    OPTIONAL(d, attention_part_forward, O, lse, Q, KV, q_at, k_at, a);
    device_charge(d, "attention forward",
                  attention_part_forward_cost(pairs, tensor_rows(Q), tensor_rows(KV), a, d->dtype));
}

static inline void dev_attention_merge(struct device *d, struct tensor O, struct tensor lse, struct tensor O2,
                                       struct tensor lse2, struct attention a)
{
    OPTIONAL(d, attention_merge, O, lse, O2, lse2, a);
    dev_charge(d, "attention merge", O, 3, 4);
}

static inline void dev_attention_delta(struct device *d, struct tensor delta, struct tensor dO, struct tensor O,
                                       struct attention a)
{
    OPTIONAL(d, attention_delta, delta, dO, O, a);
    dev_charge(d, "attention delta", O, 2, 2);
}

static inline void dev_attention_sinks_backward(struct device *d, struct tensor dsinks, struct tensor dO,
                                                struct tensor O, struct tensor lse, struct attention a)
{
    OPTIONAL(d, attention_sinks_backward, dsinks, dO, O, lse, a);
    dev_charge(d, "attention sinks backward", O, 2, 2);
}

static inline void dev_attention_part_backward(struct device *d, struct tensor dQ, struct tensor dKV, struct tensor dO,
                                               struct tensor delta, struct tensor lse, struct tensor Q,
                                               struct tensor KV, struct tensor q_at, struct tensor k_at,
                                               struct attention a, double pairs)
{
    OPTIONAL(d, attention_part_backward, dQ, dKV, dO, delta, lse, Q, KV, q_at, k_at, a);
    device_charge(d, "attention backward input",
                  attention_part_backward_cost(pairs, tensor_rows(Q), tensor_rows(KV), a, d->dtype));
}

/* With stored scores; every pair is computed, seen or not. */
static inline void dev_charge_scores(struct device *d, const char *what, struct tensor queries, struct tensor keys,
                                     struct tensor q_at, struct attention a)
{
    const int64_t scores = a.H * tensor_count(q_at) * tensor_rows(keys);
    device_charge(d, what, attention_scores_cost(scores, tensor_rows(queries), tensor_rows(keys), a, d->dtype));
}

static inline void dev_attention_scores(struct device *d, struct tensor X, int64_t first, struct tensor L,
                                        struct tensor R, struct tensor q_at, struct attention a)
{
    OPTIONAL(d, attention_scores, X, first, L, R, q_at, a);
    dev_charge_scores(d, "attention scores", L, R, q_at, a);
}

static inline void dev_attention_softmax(struct device *d, struct tensor X, struct tensor lse, struct tensor q_at,
                                         struct attention a)
{
    OPTIONAL(d, attention_softmax, X, lse, q_at, a);
    dev_charge(d, "attention softmax", X, 2, 4);
}

static inline void dev_attention_softmax_backward(struct device *d, struct tensor dX, struct tensor P,
                                                  struct tensor lse, struct attention a)
{
    OPTIONAL(d, attention_softmax_backward, dX, P, lse, a);
    dev_charge(d, "attention softmax backward", P, 3, 4);
}

static inline void dev_attention_scores_times(struct device *d, struct tensor Y, struct tensor X, int64_t first,
                                              struct tensor R, struct tensor q_at, struct attention a)
{
    OPTIONAL(d, attention_scores_times, Y, X, first, R, q_at, a);
    dev_charge_scores(d, "attention scores times", Y, R, q_at, a);
}

static inline void dev_attention_scores_transposed(struct device *d, struct tensor dR, struct tensor X,
                                                   struct tensor L, struct tensor q_at, struct attention a)
{
    OPTIONAL(d, attention_scores_transposed, dR, X, L, q_at, a);
    dev_charge_scores(d, "attention scores transposed", L, dR, q_at, a);
}

/* ---- rotary: what turns of queries and keys once each way, values not at all ------------------------------------- */

static inline void dev_charge_rotary(struct device *d, const char *what, struct tensor QKV, struct tensor table,
                                     struct attention a)
{
    device_charge(d, what, elementwise_cost(tensor_rows(QKV) * (a.H + a.K) * tensor_cols(table), 2, 3, d->dtype));
}

static inline void dev_rotary_forward(struct device *d, struct tensor QKV, struct tensor positions, struct tensor table,
                                      struct attention a)
{
    REQUIRED(d, rotary_forward, QKV, positions, table, a);
    dev_charge_rotary(d, "rotary forward", QKV, table, a);
}

static inline void dev_rotary_backward_input(struct device *d, struct tensor dQKV, struct tensor positions,
                                             struct tensor table, struct attention a)
{
    REQUIRED(d, rotary_backward_input, dQKV, positions, table, a);
    dev_charge_rotary(d, "rotary backward input", dQKV, table, a);
}

/* ---- mixture: choosing, and moving rows to the experts and back; integers are not charged ------------------------ */

static inline void dev_route_forward(struct device *d, struct tensor weights, struct tensor experts,
                                     struct tensor logits, const struct router_rule *rule, const double *bias)
{
    OPTIONAL(d, route_forward, weights, experts, logits, rule, bias);
    dev_charge(d, "route forward", logits, 1, (double)tensor_cols(weights) + 2);
}

/* The weights of experts that are given.  They cost what choosing costs: a router that is told still has its scores. */
static inline void dev_route_weights(struct device *d, struct tensor weights, struct tensor experts,
                                     struct tensor logits, const struct router_rule *rule)
{
    REQUIRED(d, route_weights, weights, experts, logits, rule);
    dev_charge(d, "route forward", logits, 1, (double)tensor_cols(weights) + 2);
}

static inline void dev_route_drop(struct device *d, struct tensor weights, struct tensor experts, int64_t S,
                                  int64_t E, int64_t capacity, bool by_weight)
{
    OPTIONAL(d, route_drop, weights, experts, S, E, capacity, by_weight);
    dev_charge(d, "route drop", weights, 2, 2);
}

static inline void dev_route_backward_input(struct device *d, struct tensor dlogits, struct tensor dweights,
                                            struct tensor weights, struct tensor experts, struct tensor logits,
                                            const struct router_rule *rule)
{
    OPTIONAL(d, route_backward_input, dlogits, dweights, weights, experts, logits, rule);
    dev_charge(d, "route backward input", logits, 2, 4);
}

static inline void dev_expert_order(struct device *d, struct tensor order, struct tensor counts, struct tensor experts)
{
    OPTIONAL(d, expert_order, order, counts, experts);
}

static inline void dev_gather_forward(struct device *d, struct tensor rows, struct tensor X, struct tensor order,
                                      int64_t k)
{
    OPTIONAL(d, gather_forward, rows, X, order, k);
    dev_charge(d, "gather forward", rows, 2, 0);
}

static inline void dev_gather_backward_input(struct device *d, struct tensor dX, struct tensor drows,
                                             struct tensor order, int64_t k)
{
    OPTIONAL(d, gather_backward_input, dX, drows, order, k);
    dev_charge(d, "gather backward input", drows, 3, 1);
}

static inline void dev_combine_forward(struct device *d, struct tensor Y, struct tensor rows, struct tensor order,
                                       struct tensor weights)
{
    OPTIONAL(d, combine_forward, Y, rows, order, weights);
    dev_charge(d, "combine forward", rows, 3, 2);
}

static inline void dev_combine_backward_input(struct device *d, struct tensor drows, struct tensor dweights,
                                              struct tensor dY, struct tensor rows, struct tensor order,
                                              struct tensor weights)
{
    OPTIONAL(d, combine_backward_input, drows, dweights, dY, rows, order, weights);
    dev_charge(d, "combine backward input", rows, 3, 3);
}

static inline void dev_identity_forward(struct device *d, struct tensor Y, struct tensor X, struct tensor experts,
                                        struct tensor weights, int64_t E)
{
    OPTIONAL(d, identity_forward, Y, X, experts, weights, E);
    dev_charge(d, "identity forward", Y, 3, 2);
}

static inline void dev_identity_backward_weights(struct device *d, struct tensor dweights, struct tensor dY,
                                                 struct tensor X, struct tensor experts, int64_t E)
{
    OPTIONAL(d, identity_backward_weights, dweights, dY, X, experts, E);
    dev_charge(d, "identity backward weights", X, 2, 2);
}

static inline void dev_router_losses_forward(struct device *d, double *sums, struct tensor logits,
                                             struct tensor experts, int64_t counted)
{
    OPTIONAL(d, router_losses_forward, sums, logits, experts, counted);
    dev_charge(d, "router losses forward", logits, 1, 4);
}

static inline void dev_router_losses_backward_input(struct device *d, struct tensor dlogits, struct tensor logits,
                                                    const double *slope, double z_slope)
{
    OPTIONAL(d, router_losses_backward_input, dlogits, logits, slope, z_slope);
    dev_charge(d, "router losses backward input", logits, 3, 8);
}

/* *sum += the loss of these rows. */
static inline void dev_sequence_balance_forward(struct device *d, double *sum, struct tensor logits,
                                                struct tensor experts, struct tensor whole, int64_t S,
                                                const struct router_rule *rule)
{
    OPTIONAL(d, sequence_balance_forward, sum, logits, experts, whole, S, rule);
    dev_charge(d, "sequence balance forward", logits, 1, 4);
}

static inline void dev_sequence_balance_backward_input(struct device *d, struct tensor dlogits, struct tensor logits,
                                                       struct tensor experts, struct tensor whole, int64_t S,
                                                       const struct router_rule *rule, double slope)
{
    OPTIONAL(d, sequence_balance_backward_input, dlogits, logits, experts, whole, S, rule, slope);
    dev_charge(d, "sequence balance backward input", logits, 3, 6);
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

static inline void dev_gelu_forward(struct device *d, struct tensor Y, struct tensor X)
{
    REQUIRED(d, gelu_forward, Y, X);
    dev_charge(d, "gelu forward", X, 2, 8);
}

static inline void dev_gelu_backward_input(struct device *d, struct tensor dX, struct tensor dY, struct tensor X)
{
    REQUIRED(d, gelu_backward_input, dX, dY, X);
    dev_charge(d, "gelu backward input", X, 3, 16);
}

static inline void dev_silu_forward(struct device *d, struct tensor Y, struct tensor X)
{
    REQUIRED(d, silu_forward, Y, X);
    dev_charge(d, "silu forward", X, 2, 3);
}

static inline void dev_silu_backward_input(struct device *d, struct tensor dX, struct tensor dY, struct tensor X)
{
    REQUIRED(d, silu_backward_input, dX, dY, X);
    dev_charge(d, "silu backward input", X, 3, 8);
}

static inline void dev_swiglu_forward(struct device *d, struct tensor Y, struct tensor X)
{
    REQUIRED(d, swiglu_forward, Y, X);
    dev_charge(d, "swiglu forward", Y, 3, 5);
}

static inline void dev_swiglu_backward_input(struct device *d, struct tensor dX, struct tensor dY, struct tensor X)
{
    REQUIRED(d, swiglu_backward_input, dX, dY, X);
    dev_charge(d, "swiglu backward input", dY, 5, 13);
}

static inline void dev_geglu_forward(struct device *d, struct tensor Y, struct tensor X)
{
    REQUIRED(d, geglu_forward, Y, X);
    dev_charge(d, "geglu forward", Y, 3, 9);
}

static inline void dev_geglu_backward_input(struct device *d, struct tensor dX, struct tensor dY, struct tensor X)
{
    REQUIRED(d, geglu_backward_input, dX, dY, X);
    dev_charge(d, "geglu backward input", dY, 5, 25);
}

static inline void dev_clamped_swiglu_forward(struct device *d, struct tensor Y, struct tensor X, struct clamped c)
{
    OPTIONAL(d, clamped_swiglu_forward, Y, X, c);
    dev_charge(d, "clamped swiglu forward", Y, 3, 9);
}

static inline void dev_clamped_swiglu_backward_input(struct device *d, struct tensor dX, struct tensor dY,
                                                     struct tensor X, struct clamped c)
{
    OPTIONAL(d, clamped_swiglu_backward_input, dX, dY, X, c);
    dev_charge(d, "clamped swiglu backward input", dY, 5, 19);
}

/* Y may be X, and dX may be dY. */
static inline void dev_soft_cap_forward(struct device *d, struct tensor Y, struct tensor X, double cap)
{
    OPTIONAL(d, soft_cap_forward, Y, X, cap);
    dev_charge(d, "soft cap forward", X, 2, 5);
}

static inline void dev_soft_cap_backward_input(struct device *d, struct tensor dX, struct tensor dY, struct tensor Y,
                                               double cap)
{
    OPTIONAL(d, soft_cap_backward_input, dX, dY, Y, cap);
    dev_charge(d, "soft cap backward input", Y, 3, 5);
}

/* ---- parallel streams -------------------------------------------------------------------------------------------- */

static inline void dev_streams_beside(struct device *d, struct tensor X, struct tensor H)
{
    REQUIRED(d, streams_beside, X, H);
    dev_charge(d, "streams side by side", X, 2, 0);
}

static inline void dev_streams_beside_backward_input(struct device *d, struct tensor dH, struct tensor dX)
{
    REQUIRED(d, streams_beside_backward_input, dH, dX);
    dev_charge(d, "streams side by side backward input", dX, 2, 0);
}

static inline void dev_streams_mix_forward(struct device *d, struct tensor Y, struct tensor p, struct tensor logits,
                                           struct tensor X, double smoothing)
{
    REQUIRED(d, streams_mix_forward, Y, p, logits, X, smoothing);
    dev_charge(d, "mean of streams forward", X, 1, 2);
}

static inline void dev_streams_mix_backward_input(struct device *d, struct tensor dX, struct tensor dlogits,
                                                  struct tensor dY, struct tensor p, struct tensor X, double smoothing)
{
    REQUIRED(d, streams_mix_backward_input, dX, dlogits, dY, p, X, smoothing);
    dev_charge(d, "mean of streams backward input", X, 2, 3);
}

static inline void dev_columns_move(struct device *d, struct tensor Y, struct tensor X, struct column_blocks at,
                                    bool add)
{
    REQUIRED(d, columns_move, Y, X, at, add);
    dev_charge(d, "columns moved", tensor_2d(NULL, X.dtype, tensor_rows(X), at.times * at.count), add ? 3 : 2, add);
}

static inline void dev_gate_forward(struct device *d, struct tensor Y, struct tensor X, struct tensor logits)
{
    REQUIRED(d, gate_forward, Y, X, logits);
    dev_charge(d, "gate forward", Y, 2, 1);
}

static inline void dev_gate_backward_input(struct device *d, struct tensor dX, struct tensor dlogits, struct tensor dY,
                                           struct tensor X, struct tensor logits)
{
    REQUIRED(d, gate_backward_input, dX, dlogits, dY, X, logits);
    dev_charge(d, "gate backward input", dY, 3, 3);
}

static inline void dev_add(struct device *d, struct tensor Y, struct tensor A, struct tensor B)
{
    REQUIRED(d, add, Y, A, B);
    dev_charge(d, "add", Y, 3, 1);
}

static inline void dev_dropout(struct device *d, struct tensor Y, struct tensor X, struct dropout drop)
{
    REQUIRED(d, dropout, Y, X, drop);
    dev_charge(d, "dropout", X, 2, 1);
}

/* Parts of what one kernel does on a GPU, such as rows with a distance between them: the caller charges the whole. */
static inline void dev_add_part(struct device *d, struct tensor Y, struct tensor A, struct tensor B)
{
    REQUIRED(d, add, Y, A, B);
}

static inline void dev_dropout_part(struct device *d, struct tensor Y, struct tensor X, struct dropout drop)
{
    REQUIRED(d, dropout, Y, X, drop);
}

static inline void dev_scale(struct device *d, struct tensor Y, double a)
{
    REQUIRED(d, scale, Y, a);
    dev_charge(d, "scale", Y, 2, 1);
}

/* ---- cross-entropy ----------------------------------------------------------------------------------------------- */

static inline void dev_cross_entropy_max(struct device *d, struct tensor top, struct tensor logits)
{
    REQUIRED(d, cross_entropy_max, top, logits);
    dev_charge(d, "cross entropy max", logits, 1, 1);
}

static inline void dev_cross_entropy_sums(struct device *d, struct tensor total, struct tensor hit,
                                          struct tensor logits, struct tensor top, struct tensor labels, int64_t first)
{
    REQUIRED(d, cross_entropy_sums, total, hit, logits, top, labels, first);
    dev_charge(d, "cross entropy sums", logits, 1, 3);
}

static inline void dev_cross_entropy_loss(struct device *d, double *loss, struct tensor total, struct tensor top,
                                          struct tensor hit, struct tensor labels, int ignore)
{
    REQUIRED(d, cross_entropy_loss, loss, total, top, hit, labels, ignore);
    dev_charge(d, "cross entropy loss", total, 3, 4);
}

static inline void dev_cross_entropy_backward(struct device *d, struct tensor dlogits, struct tensor logits,
                                              struct tensor total, struct tensor top, struct tensor labels,
                                              int64_t first, int ignore, double scale)
{
    REQUIRED(d, cross_entropy_backward, dlogits, logits, total, top, labels, first, ignore, scale);
    dev_charge(d, "cross entropy backward", logits, 2, 5);
}

#undef REQUIRED
#undef OPTIONAL

#endif
