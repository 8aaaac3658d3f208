/* widened.c -- the operations of the 16-bit formats: the fp32 operations on widened operands; results are rounded once.
 *
 * Each function makes fp32 copies of its 16-bit operands, calls the operation of ref/ops/NAME.c compiled for fp32, and
 * rounds each result once, when it is stored.  A tensor that is fp32 already is used in place: statistics always are,
 * gradients of weights may be.  All 16-bit formats share these functions; their tables differ only in the format.
 *
 * The copies are in host memory for one call: they stand for registers of the emulated device, not for its memory.  If
 * the machine is out of memory, the program is aborted, as in the BLAS.
 */
#include "ref/ops/ops.h"
#include "ref/numeric/convert.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define T struct tensor

extern const struct ops ops_f32;

struct scratch { void *block[8]; int used; };

static void *take(struct scratch *s, size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (p == NULL) fprintf(stderr, "orrery: no memory for %zu bytes of fp32 copies\n", bytes), abort();
    return s->block[s->used++] = p;
}

static bool needs_copy(T X) { return tensor_present(X) && dtype_size(X.dtype) == 2; }

/* An fp32 buffer of this shape with undefined content; the tensor itself if no copy is needed. */
static T room(struct scratch *s, T X)
{
    if (!needs_copy(X)) return X;
    X.dtype = F32;
    X.data = take(s, tensor_bytes(X));
    return X;
}

static T wide(struct scratch *s, T X)
{
    const T copy = room(s, X);
    if (needs_copy(X)) tensor_convert(copy, X);
    return copy;
}

static void store(T Y, T from)
{
    if (needs_copy(Y)) tensor_convert(Y, from);
}

static void end(struct scratch *s)
{
    while (s->used > 0) free(s->block[--s->used]);
}

/* Call an operation of fp32 that writes `result`, a wide OUT, and round that once.  s: for wide copies of operands. */
#define ROUNDED(OUT, ...)                                                                                              \
    do {                                                                                                               \
        struct scratch s = { 0 };                                                                                      \
        const T result = room(&s, OUT);                                                                                \
        ops_f32.__VA_ARGS__;                                                                                           \
        store(OUT, result), end(&s);                                                                                   \
    } while (0)

/* ---- embedding: only the rows of the table that are used are widened --------------------------------------------- */

static void embedding_forward(T Y, T ids, T W, int64_t first, bool accumulate)
{
    struct scratch s = { 0 };
    const int64_t N = tensor_count(ids), D = tensor_cols(W), rows = tensor_rows(W);
    const T here = tensor_1d(take(&s, (size_t)N * 4), I32, N),
            looked_up = tensor_2d(take(&s, (size_t)(N * D) * 4), F32, N, D);
    for (int64_t n = 0; n < N; n++) {
        const int64_t row = ((const int32_t *)ids.data)[n] - first;
        const bool found = row >= 0 && row < rows;
        ((int32_t *)here.data)[n] = found ? (int32_t)n : -1;
        if (found)
            convert_numbers((float *)looked_up.data + n * D, F32,
                    (const char *)W.data + (size_t)(row * D) * dtype_size(W.dtype), W.dtype, D);
    }
    const T y = accumulate ? wide(&s, Y) : room(&s, Y);
    ops_f32.embedding_forward(y, here, looked_up, 0, accumulate);
    store(Y, y), end(&s);
}

static void embedding_backward_weight(T dW, T dY, T ids, int64_t first)
{
    struct scratch s = { 0 };
    const T dw = wide(&s, dW);
    ops_f32.embedding_backward_weight(dw, wide(&s, dY), ids, first);
    store(dW, dw), end(&s);
}

/* ---- layernorm --------------------------------------------------------------------------------------------------- */

static void layernorm_forward(T Y, T mean, T rstd, T X, T w, T b, double eps)
{
    struct scratch s = { 0 };
    const T y = room(&s, Y);
    assert(mean.dtype == F32 && rstd.dtype == F32);
    ops_f32.layernorm_forward(y, mean, rstd, wide(&s, X), wide(&s, w), wide(&s, b), eps);
    store(Y, y), end(&s);
}

static void layernorm_backward_input(T dX, T dY, T X, T w, T mean, T rstd)
{
    ROUNDED(dX, layernorm_backward_input(result, wide(&s, dY), wide(&s, X), wide(&s, w), mean, rstd));
}

static void layernorm_backward_weight(T dw, T db, T dY, T X, T mean, T rstd)
{
    struct scratch s = { 0 };
    const T dw_ = wide(&s, dw), db_ = wide(&s, db);
    ops_f32.layernorm_backward_weight(dw_, db_, wide(&s, dY), wide(&s, X), mean, rstd);
    store(dw, dw_), store(db, db_), end(&s);
}

static void row_sums(T sum, T X)
{
    struct scratch s = { 0 };
    ops_f32.row_sums(sum, wide(&s, X));
    end(&s);
}

static void row_centred_squares(T sum, T X, T mean)
{
    struct scratch s = { 0 };
    ops_f32.row_centred_squares(sum, wide(&s, X), mean);
    end(&s);
}

static void layernorm_forward_part(T Y, T rstd, T X, T w, double base, T b, T mean, int64_t width, double eps)
{
    ROUNDED(Y, layernorm_forward_part(result, rstd, wide(&s, X), wide(&s, w), base, wide(&s, b), mean, width, eps));
}

static void layernorm_backward_sums(T sums, T dY, T X, T w, double base, T mean, T rstd)
{
    struct scratch s = { 0 };
    ops_f32.layernorm_backward_sums(sums, wide(&s, dY), wide(&s, X), wide(&s, w), base, mean, rstd);
    end(&s);
}

static void layernorm_backward_part(T dX, T dY, T X, T w, double base, T mean, T rstd, T sums, int64_t width)
{
    ROUNDED(dX, layernorm_backward_part(result, wide(&s, dY), wide(&s, X), wide(&s, w), base, mean, rstd, sums, width));
}

/* ---- linear ------------------------------------------------------------------------------------------------------ */

static void linear_forward(T Y, T X, T W, T b)
{
    ROUNDED(Y, linear_forward(result, wide(&s, X), wide(&s, W), wide(&s, b)));
}

static void linear_forward_add(T Y, T X, T W)
{
    struct scratch s = { 0 };
    const T y = wide(&s, Y);
    ops_f32.linear_forward_add(y, wide(&s, X), wide(&s, W));
    store(Y, y), end(&s);
}

static void column_sums(T db, T dY)
{
    struct scratch s = { 0 };
    const T db_ = wide(&s, db);
    ops_f32.column_sums(db_, wide(&s, dY));
    store(db, db_), end(&s);
}

static void linear_backward_input(T dX, T dY, T W)
{
    ROUNDED(dX, linear_backward_input(result, wide(&s, dY), wide(&s, W)));
}

static void linear_backward_weight(T dW, T db, T dY, T X)
{
    struct scratch s = { 0 };
    const T dw = wide(&s, dW), db_ = wide(&s, db);
    ops_f32.linear_backward_weight(dw, db_, wide(&s, dY), wide(&s, X));
    store(dW, dw), store(db, db_), end(&s);
}

/* Copy some columns of a matrix to a matrix in fp32; and back, rounded. */
static T wide_columns(struct scratch *s, T X, int64_t first, int64_t width, bool filled)
{
    const T part = tensor_2d(take(s, (size_t)(tensor_rows(X) * width) * sizeof(float)), F32, tensor_rows(X), width);
    for (int64_t n = 0; n < tensor_rows(X) && filled; n++)
        convert_numbers((float *)part.data + n * width, F32, (char *)X.data + (size_t)(n * tensor_cols(X) + first) * 2,
                        X.dtype, width);
    return part;
}

static void store_columns(T Y, int64_t first, T from)
{
    const int64_t width = tensor_cols(from);
    for (int64_t n = 0; n < tensor_rows(Y); n++)
        convert_numbers((char *)Y.data + (size_t)(n * tensor_cols(Y) + first) * 2, Y.dtype,
                        (float *)from.data + n * width, F32, width);
}

static void linear_forward_columns(T Y, int64_t first, T X, T W, T b)
{
    struct scratch s = { 0 };
    const T y = wide_columns(&s, Y, first, tensor_rows(W), false);
    ops_f32.linear_forward(y, wide(&s, X), wide(&s, W), wide(&s, b));
    store_columns(Y, first, y), end(&s);
}

static void linear_backward_input_columns(T dX, T dY, int64_t first, T W, bool accumulate)
{
    struct scratch s = { 0 };
    const T dx = accumulate ? wide(&s, dX) : room(&s, dX);
    ops_f32.linear_backward_input_columns(dx, wide_columns(&s, dY, first, tensor_rows(W), true), 0, wide(&s, W),
                                          accumulate);
    store(dX, dx), end(&s);
}

static void linear_backward_weight_columns(T dW, T dY, int64_t first, T X)
{
    struct scratch s = { 0 };
    const T dw = wide(&s, dW);
    ops_f32.linear_backward_weight_columns(dw, wide_columns(&s, dY, first, tensor_rows(dW), true), 0, wide(&s, X));
    store(dW, dw), end(&s);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static void attention_forward(T O, T lse, T QKV, struct attention a)
{
    struct scratch s = { 0 };
    const T o = room(&s, O);
    assert(lse.dtype == F32);
    a.sinks = wide(&s, a.sinks);
    ops_f32.attention_forward(o, lse, wide(&s, QKV), a);
    store(O, o), end(&s);
}

static void attention_backward_input(T dQKV, T dO, T O, T lse, T QKV, struct attention a)
{
    ROUNDED(dQKV, attention_backward_input(result, wide(&s, dO), wide(&s, O), lse, wide(&s, QKV), a));
}

static void attention_sinks_backward(T dsinks, T dO, T O, T lse, struct attention a)
{
    struct scratch s = { 0 };
    const T d = wide(&s, dsinks);
    a.sinks = wide(&s, a.sinks);
    ops_f32.attention_sinks_backward(d, wide(&s, dO), wide(&s, O), lse, a);
    store(dsinks, d), end(&s);
}

static void attention_part_forward(T O, T lse, T Q, T KV, T q_at, T k_at, struct attention a)
{
    struct scratch s = { 0 };
    const T o = room(&s, O);
    assert(lse.dtype == F32);
    a.sinks = wide(&s, a.sinks);
    ops_f32.attention_part_forward(o, lse, wide(&s, Q), wide(&s, KV), q_at, k_at, a);
    store(O, o), end(&s);
}

static void attention_merge(T O, T lse, T O2, T lse2, struct attention a)
{
    struct scratch s = { 0 };
    const T o = wide(&s, O);
    ops_f32.attention_merge(o, lse, wide(&s, O2), lse2, a);
    store(O, o), end(&s);
}

static void attention_delta(T delta, T dO, T O, struct attention a)
{
    struct scratch s = { 0 };
    assert(delta.dtype == F32);
    ops_f32.attention_delta(delta, wide(&s, dO), wide(&s, O), a);
    end(&s);
}

static void attention_part_backward(T dQ, T dKV, T dO, T delta, T lse, T Q, T KV, T q_at, T k_at, struct attention a)
{
    struct scratch s = { 0 };
    const T dq = wide(&s, dQ), dkv = wide(&s, dKV);
    ops_f32.attention_part_backward(dq, dkv, wide(&s, dO), delta, lse, wide(&s, Q), wide(&s, KV), q_at, k_at, a);
    store(dQ, dq), store(dKV, dkv), end(&s);
}

/* Scores are statistics: fp32. */
static void attention_scores(T X, int64_t first, T L, T R, T q_at, struct attention a)
{
    struct scratch s = { 0 };
    assert(X.dtype == F32);
    ops_f32.attention_scores(X, first, wide(&s, L), wide(&s, R), q_at, a);
    end(&s);
}

static void attention_softmax(T X, T lse, T q_at, struct attention a)
{
    ops_f32.attention_softmax(X, lse, q_at, a);
}

static void attention_softmax_backward(T dX, T P, T lse, struct attention a)
{
    ops_f32.attention_softmax_backward(dX, P, lse, a);
}

static void attention_scores_times(T Y, T X, int64_t first, T R, T q_at, struct attention a)
{
    struct scratch s = { 0 };
    const T y = wide(&s, Y);
    ops_f32.attention_scores_times(y, X, first, wide(&s, R), q_at, a);
    store(Y, y), end(&s);
}

static void attention_scores_transposed(T dR, T X, T L, T q_at, struct attention a)
{
    ROUNDED(dR, attention_scores_transposed(result, X, wide(&s, L), q_at, a));
}

/* ---- element by element: results may overwrite operands, because those were copied ------------------------------- */

static void gelu_forward(T Y, T X)
{
    ROUNDED(Y, gelu_forward(result, wide(&s, X)));
}

static void gelu_backward_input(T dX, T dY, T X)
{
    ROUNDED(dX, gelu_backward_input(result, wide(&s, dY), wide(&s, X)));
}

static void soft_cap_forward(T Y, T X, double cap)
{
    ROUNDED(Y, soft_cap_forward(result, wide(&s, X), cap));
}

static void soft_cap_backward_input(T dX, T dY, T Y, double cap)
{
    ROUNDED(dX, soft_cap_backward_input(result, wide(&s, dY), wide(&s, Y), cap));
}

static void add(T Y, T A, T B)
{
    ROUNDED(Y, add(result, wide(&s, A), wide(&s, B)));
}

static void dropout(T Y, T X, struct dropout d)
{
    ROUNDED(Y, dropout(result, wide(&s, X), d));
}

static double sum_of_squares(T X)
{
    struct scratch s = { 0 };
    const double sum = ops_f32.sum_of_squares(wide(&s, X));
    end(&s);
    return sum;
}

static void scale(T Y, double a)
{
    struct scratch s = { 0 };
    const T y = wide(&s, Y);
    ops_f32.scale(y, a);
    store(Y, y), end(&s);
}

/* ---- rmsnorm, rotary positions, swiglu and geglu ----------------------------------------------------------------- */

static void rmsnorm_forward(T Y, T rstd, T X, T w, double base, double eps)
{
    struct scratch s = { 0 };
    const T y = room(&s, Y);
    assert(rstd.dtype == F32);
    ops_f32.rmsnorm_forward(y, rstd, wide(&s, X), wide(&s, w), base, eps);
    store(Y, y), end(&s);
}

static void rmsnorm_backward_input(T dX, T dY, T X, T w, double base, T rstd)
{
    ROUNDED(dX, rmsnorm_backward_input(result, wide(&s, dY), wide(&s, X), wide(&s, w), base, rstd));
}

static void rmsnorm_backward_weight(T dw, T dY, T X, T rstd)
{
    struct scratch s = { 0 };
    const T dw_ = wide(&s, dw);
    ops_f32.rmsnorm_backward_weight(dw_, wide(&s, dY), wide(&s, X), rstd);
    store(dw, dw_), end(&s);
}

static void head_norm_forward(T Y, T rstd, T X, T w, double base, struct attention a, double eps)
{
    struct scratch s = { 0 };
    const T y = room(&s, Y);
    assert(rstd.dtype == F32);
    ops_f32.head_norm_forward(y, rstd, wide(&s, X), wide(&s, w), base, a, eps);
    store(Y, y), end(&s);
}

static void head_norm_backward_input(T dX, T dY, T X, T w, double base, T rstd, struct attention a)
{
    ROUNDED(dX, head_norm_backward_input(result, wide(&s, dY), wide(&s, X), wide(&s, w), base, rstd, a));
}

static void head_norm_backward_weight(T dw, T dY, T X, T rstd, struct attention a)
{
    struct scratch s = { 0 };
    const T dw_ = wide(&s, dw);
    ops_f32.head_norm_backward_weight(dw_, wide(&s, dY), wide(&s, X), rstd, a);
    store(dw, dw_), end(&s);
}

/* The table of angles may be fp32, which is more exact for long sequences. */
static void rotary_forward(T QKV, T positions, T table, struct attention a)
{
    struct scratch s = { 0 };
    const T qkv = wide(&s, QKV);
    ops_f32.rotary_forward(qkv, positions, wide(&s, table), a);
    store(QKV, qkv), end(&s);
}

static void rotary_backward_input(T dQKV, T positions, T table, struct attention a)
{
    struct scratch s = { 0 };
    const T dqkv = wide(&s, dQKV);
    ops_f32.rotary_backward_input(dqkv, positions, wide(&s, table), a);
    store(dQKV, dqkv), end(&s);
}

static void swiglu_forward(T Y, T X)
{
    ROUNDED(Y, swiglu_forward(result, wide(&s, X)));
}

static void swiglu_backward_input(T dX, T dY, T X)
{
    ROUNDED(dX, swiglu_backward_input(result, wide(&s, dY), wide(&s, X)));
}

static void geglu_forward(T Y, T X)
{
    ROUNDED(Y, geglu_forward(result, wide(&s, X)));
}

static void geglu_backward_input(T dX, T dY, T X)
{
    ROUNDED(dX, geglu_backward_input(result, wide(&s, dY), wide(&s, X)));
}

static void clamped_swiglu_forward(T Y, T X, struct clamped c)
{
    ROUNDED(Y, clamped_swiglu_forward(result, wide(&s, X), c));
}

static void clamped_swiglu_backward_input(T dX, T dY, T X, struct clamped c)
{
    ROUNDED(dX, clamped_swiglu_backward_input(result, wide(&s, dY), wide(&s, X), c));
}

/* What is added is rounded once. */
static void columns_move(T Y, T X, struct column_blocks at, bool add)
{
    struct scratch s = { 0 };
    const T y = wide(&s, Y);
    ops_f32.columns_move(y, wide(&s, X), at, add);
    store(Y, y), end(&s);
}

static void gate_forward(T Y, T X, T logits)
{
    ROUNDED(Y, gate_forward(result, wide(&s, X), wide(&s, logits)));
}

static void gate_backward_input(T dX, T dlogits, T dY, T X, T logits)
{
    struct scratch s = { 0 };
    const T dx = room(&s, dX), dl = room(&s, dlogits);
    ops_f32.gate_backward_input(dx, dl, wide(&s, dY), wide(&s, X), wide(&s, logits));
    store(dX, dx), store(dlogits, dl), end(&s);
}

/* ---- parallel streams: p is a statistic -------------------------------------------------------------------------- */

static void silu_forward(T Y, T X)
{
    ROUNDED(Y, silu_forward(result, wide(&s, X)));
}

static void silu_backward_input(T dX, T dY, T X)
{
    ROUNDED(dX, silu_backward_input(result, wide(&s, dY), wide(&s, X)));
}

static void streams_beside(T X, T H)
{
    ROUNDED(X, streams_beside(result, wide(&s, H)));
}

static void streams_beside_backward_input(T dH, T dX)
{
    ROUNDED(dH, streams_beside_backward_input(result, wide(&s, dX)));
}

static void streams_mix_forward(T Y, T p, T logits, T X, double smoothing)
{
    ROUNDED(Y, streams_mix_forward(result, p, wide(&s, logits), wide(&s, X), smoothing));
}

static void streams_mix_backward_input(T dX, T dlogits, T dY, T p, T X, double smoothing)
{
    struct scratch s = { 0 };
    const T dx = room(&s, dX), dl = room(&s, dlogits);
    ops_f32.streams_mix_backward_input(dx, dl, wide(&s, dY), p, wide(&s, X), smoothing);
    store(dX, dx), store(dlogits, dl), end(&s);
}

/* ---- a mixture's router and experts: of equal 16-bit logits the lower index is chosen ---------------------------- */

static void route_forward(T weights, T experts, T logits, const struct router_rule *rule, const double *bias)
{
    ROUNDED(weights, route_forward(result, experts, wide(&s, logits), rule, bias));
}

static void route_weights(T weights, T experts, T logits, const struct router_rule *rule)
{
    ROUNDED(weights, route_weights(result, experts, wide(&s, logits), rule));
}

static void route_drop(T weights, T experts, int64_t S, int64_t E, int64_t capacity, bool by_weight)
{
    struct scratch s = { 0 };
    const T w = wide(&s, weights);
    ops_f32.route_drop(w, experts, S, E, capacity, by_weight);
    store(weights, w), end(&s);
}

static void identity_forward(T Y, T X, T experts, T weights, int64_t E)
{
    struct scratch s = { 0 };
    const T y = wide(&s, Y);
    ops_f32.identity_forward(y, wide(&s, X), experts, wide(&s, weights), E);
    store(Y, y), end(&s);
}

static void identity_backward_weights(T dweights, T dY, T X, T experts, int64_t E)
{
    struct scratch s = { 0 };
    const T dw = wide(&s, dweights);
    ops_f32.identity_backward_weights(dw, wide(&s, dY), wide(&s, X), experts, E);
    store(dweights, dw), end(&s);
}

static void route_backward_input(T dlogits, T dweights, T weights, T experts, T logits, const struct router_rule *rule)
{
    ROUNDED(dlogits, route_backward_input(result, wide(&s, dweights), wide(&s, weights), experts, wide(&s, logits),
            rule));
}

static void expert_order(T order, T counts, T experts) { ops_f32.expert_order(order, counts, experts); }

static void gather_forward(T rows, T X, T order, int64_t k)
{
    ROUNDED(rows, gather_forward(result, wide(&s, X), order, k));
}

static void gather_backward_input(T dX, T drows, T order, int64_t k)
{
    ROUNDED(dX, gather_backward_input(result, wide(&s, drows), order, k));
}

static void combine_forward(T Y, T rows, T order, T weights)
{
    ROUNDED(Y, combine_forward(result, wide(&s, rows), order, wide(&s, weights)));
}

static void combine_backward_input(T drows, T dweights, T dY, T rows, T order, T weights)
{
    struct scratch s = { 0 };
    const T dr = room(&s, drows), dw = room(&s, dweights);
    ops_f32.combine_backward_input(dr, dw, wide(&s, dY), wide(&s, rows), order, wide(&s, weights));
    store(drows, dr), store(dweights, dw), end(&s);
}

static void sequence_balance_forward(double *sum, T logits, T experts, T whole, int64_t S,
                                     const struct router_rule *rule)
{
    struct scratch s = { 0 };
    ops_f32.sequence_balance_forward(sum, wide(&s, logits), experts, whole, S, rule);
    end(&s);
}

static void sequence_balance_backward_input(T dlogits, T logits, T experts, T whole, int64_t S,
                                            const struct router_rule *rule, double slope)
{
    struct scratch s = { 0 };
    const T dx = wide(&s, dlogits);
    ops_f32.sequence_balance_backward_input(dx, wide(&s, logits), experts, whole, S, rule, slope);
    store(dlogits, dx), end(&s);
}

static void router_losses_forward(double *sums, T logits, T experts, int64_t counted)
{
    struct scratch s = { 0 };
    ops_f32.router_losses_forward(sums, wide(&s, logits), experts, counted);
    end(&s);
}

static void router_losses_backward_input(T dlogits, T logits, const double *slope, double z_slope)
{
    struct scratch s = { 0 };
    const T dx = wide(&s, dlogits);
    ops_f32.router_losses_backward_input(dx, wide(&s, logits), slope, z_slope);
    store(dlogits, dx), end(&s);
}

/* ---- cross-entropy: only the logits and their gradient are stored in 16 bits ------------------------------------- */

static void cross_entropy_max(T top, T logits)
{
    struct scratch s = { 0 };
    assert(top.dtype == F32);
    ops_f32.cross_entropy_max(top, wide(&s, logits));
    end(&s);
}

static void cross_entropy_sums(T total, T hit, T logits, T top, T labels, int64_t first)
{
    struct scratch s = { 0 };
    assert(total.dtype == F32 && hit.dtype == F32 && top.dtype == F32);
    ops_f32.cross_entropy_sums(total, hit, wide(&s, logits), top, labels, first);
    end(&s);
}

static double cross_entropy_loss(T total, T top, T hit, T labels, int ignore)
{
    return ops_f32.cross_entropy_loss(total, top, hit, labels, ignore);
}

static void cross_entropy_backward(T dlogits, T logits, T total, T top, T labels, int64_t first, int ignore,
                                   double factor)
{
    ROUNDED(dlogits, cross_entropy_backward(result, wide(&s, logits), total, top, labels, first, ignore, factor));
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

#define WIDENED(format)                                                                                             \
    {                                                                                                               \
        .dtype = format,                                                                                            \
        .embedding_forward = embedding_forward, .embedding_backward_weight = embedding_backward_weight,             \
        .layernorm_forward = layernorm_forward, .layernorm_backward_input = layernorm_backward_input,               \
        .layernorm_backward_weight = layernorm_backward_weight,                                                     \
        .row_sums = row_sums, .row_centred_squares = row_centred_squares,                                           \
        .layernorm_forward_part = layernorm_forward_part, .layernorm_backward_sums = layernorm_backward_sums,       \
        .layernorm_backward_part = layernorm_backward_part,                                                         \
        .linear_forward_add = linear_forward_add, .column_sums = column_sums,                                       \
        .linear_forward = linear_forward, .linear_backward_input = linear_backward_input,                           \
        .linear_backward_weight = linear_backward_weight, .linear_forward_columns = linear_forward_columns,         \
        .linear_backward_input_columns = linear_backward_input_columns,                                             \
        .linear_backward_weight_columns = linear_backward_weight_columns,                                           \
        .attention_forward = attention_forward, .attention_backward_input = attention_backward_input,               \
        .attention_part_forward = attention_part_forward, .attention_merge = attention_merge,                       \
        .attention_sinks_backward = attention_sinks_backward,                                                       \
        .attention_delta = attention_delta, .attention_part_backward = attention_part_backward,                     \
        .attention_scores = attention_scores, .attention_softmax = attention_softmax,                               \
        .attention_softmax_backward = attention_softmax_backward,                                                   \
        .attention_scores_times = attention_scores_times,                                                           \
        .attention_scores_transposed = attention_scores_transposed,                                                 \
        .soft_cap_forward = soft_cap_forward, .soft_cap_backward_input = soft_cap_backward_input,                   \
        .gelu_forward = gelu_forward, .gelu_backward_input = gelu_backward_input, .add = add, .dropout = dropout,   \
        .rmsnorm_forward = rmsnorm_forward, .rmsnorm_backward_input = rmsnorm_backward_input,                       \
        .rmsnorm_backward_weight = rmsnorm_backward_weight,                                                         \
        .head_norm_forward = head_norm_forward, .head_norm_backward_input = head_norm_backward_input,               \
        .head_norm_backward_weight = head_norm_backward_weight,                                                     \
        .rotary_forward = rotary_forward, .rotary_backward_input = rotary_backward_input,                           \
        .swiglu_forward = swiglu_forward, .swiglu_backward_input = swiglu_backward_input,                           \
        .geglu_forward = geglu_forward, .geglu_backward_input = geglu_backward_input,                               \
        .clamped_swiglu_forward = clamped_swiglu_forward,                                                           \
        .clamped_swiglu_backward_input = clamped_swiglu_backward_input,                                             \
        .columns_move = columns_move,                                                                               \
        .gate_forward = gate_forward, .gate_backward_input = gate_backward_input,                                   \
        .silu_forward = silu_forward, .silu_backward_input = silu_backward_input,                                   \
        .streams_beside = streams_beside, .streams_beside_backward_input = streams_beside_backward_input,           \
        .streams_mix_forward = streams_mix_forward, .streams_mix_backward_input = streams_mix_backward_input,       \
        .route_drop = route_drop, .identity_forward = identity_forward,                                             \
        .identity_backward_weights = identity_backward_weights,                                                     \
        .sequence_balance_forward = sequence_balance_forward,                                                       \
        .sequence_balance_backward_input = sequence_balance_backward_input,                                         \
        .route_forward = route_forward, .route_weights = route_weights,                                             \
        .route_backward_input = route_backward_input, .expert_order = expert_order,                                 \
        .gather_forward = gather_forward, .gather_backward_input = gather_backward_input,                           \
        .combine_forward = combine_forward, .combine_backward_input = combine_backward_input,                       \
        .router_losses_forward = router_losses_forward,                                                             \
        .router_losses_backward_input = router_losses_backward_input,                                               \
        .cross_entropy_max = cross_entropy_max, .cross_entropy_sums = cross_entropy_sums,                           \
        .cross_entropy_loss = cross_entropy_loss, .cross_entropy_backward = cross_entropy_backward,                 \
        .sum_of_squares = sum_of_squares, .scale = scale,                                                           \
    }

const struct ops ops_bf16 = WIDENED(BF16), ops_f16 = WIDENED(F16);
