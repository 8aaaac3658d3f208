/* experts.c -- a mixture's experts: two products, each expert's with its own matrix, and the weighted sum.
 *
 * Rows are choices, sorted by expert, then by token.  Products and their bounds are those of matrix.c.  The gradient of
 * a token is the sum over its choices, each rounded; by steps all sums are stored.
 */
#include "emulated_devices/check/recompute/products.h"
#include "emulated_devices/check/recompute/routing.h"
#include <string.h>

static int64_t first_row(const struct routing *r, int64_t expert)
{
    int64_t first = 0;
    for (int64_t e = 0; e < expert; e++) first += routing_count(r, e);
    return first;
}

/* The rows of one expert, of a matrix with a row for each choice; of one with a row for each token if `tokens`. */
static struct tensor rows_of(struct single *s, const struct routing *r, int64_t expert, struct tensor X, bool tokens)
{
    const int64_t first = first_row(r, expert), n = routing_count(r, expert), cols = tensor_cols(X);
    const struct tensor out = single_new(s, n, cols);
    for (int64_t i = 0; !s->failed && i < n; i++)
        memcpy(numbers(out) + i * cols, numbers(X) + (tokens ? routing_token(r, first + i) : first + i) * cols,
               (size_t)cols * sizeof(double));
    return out;
}

static void put_rows(struct tensor to, int64_t first, struct tensor from)
{
    memcpy(numbers(to) + first * tensor_cols(to), from.data, tensor_bytes(from));
}

/* One product for each expert that has rows: Y = X W^T, or backward dX = dY W. */
static struct single_value products(struct single *s, const struct single_node *n, const struct routing *r,
                                    struct tensor X, bool tokens, bool back)
{
    const struct param_spec p = model_param(s->context->config, n->weight);
    const struct single_value v = single_value_new(s, r->rows, back ? p.dim[1] : p.dim[0]);
    for (int64_t e = 0; e < r->E && single_going(s); e++) {
        const int used = s->memory.used;
        const int64_t first = first_row(r, e);
        if (routing_count(r, e) == 0) continue;
        const struct tensor W = single_param(s, n->weight + (int)e * n->stride), x = rows_of(s, r, e, X, tokens),
                            b = back || n->bias < 0 ? tensor_none : single_param(s, n->bias + (int)e * n->stride);
        if (single_going(s)) {
            const struct single_value one = back ? product_input(s, x, W, n->matrices) : product(s, x, W, b);
            if (!s->failed) put_rows(v.y, first, one.y), put_rows(v.fused, first, one.fused);
            if (!s->failed) put_rows(v.steps, first, one.steps);
        }
        single_release(s, used);
    }
    return v;
}

/* The rows of one expert, tile after tile. */
static struct single_value weight_of(struct single *s, const struct single_node *n, bool tokens)
{
    const struct param_spec p = model_param(s->context->config, n->weight);
    struct product_sum a = product_weight_begin(s, p.dim[0], p.dim[1]);
    const int used = s->memory.used;
    s->cursor.one_expert = true;
    for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);) {
        const struct routing r = routing_of(s, n->logits);
        const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
        if (single_going(s))
            product_weight_add(s, &a, rows_of(s, &r, s->cursor.expert, dY, false),
                               rows_of(s, &r, s->cursor.expert, X, tokens));
        single_release(s, used);
    }
    single_take_all(s);
    s->cursor.one_expert = false;
    return single_going(s) ? product_weight_end(s, &a) : single_stop(s);
}

static struct single_value bias(struct single *s, const struct single_node *n)
{
    struct product_sum a = product_bias_begin(s, single_slot(s, n->out)->cols);
    const int used = s->memory.used;
    s->cursor.one_expert = true;
    for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);) {
        const struct routing r = routing_of(s, n->logits);
        const struct tensor dY = single_grad(s, n->out);
        if (single_going(s)) product_bias_add(s, &a, rows_of(s, &r, s->cursor.expert, dY, false));
        single_release(s, used);
    }
    single_take_all(s);
    s->cursor.one_expert = false;
    return single_going(s) ? product_weight_end(s, &a) : single_stop(s);
}

/* Add the rows of a token; times: of each choice, NULL for 1; sizes: of the rows.  What is added up is stored by steps.
 * Ranks that have parts of the rows each make a part of the sum, which is stored, and so is each sum of parts. */
static struct single_value sum_rows(struct single *s, const struct routing *r, struct single_value rows,
                                    struct single_sizes sizes, const double *times)
{
    const int64_t N = tensor_rows(r->logits), D = tensor_cols(rows.y);
    const struct single_value v = single_value_new(s, N, D);
    const struct tensor absolute = single_new(s, N, D);
    const bool parts = sizes.parts > 1;
    for (int64_t i = 0; !s->failed && i < r->rows * D; i++) {
        const int64_t at = routing_token(r, i / D) * D + i % D;
        const double w = times ? times[((const int32_t *)r->order.data)[i / D]] : 1;
        numbers(v.y)[at] += w * numbers(rows.y)[i], numbers(absolute)[at] += fabs(w) * numbers(sizes.absolute)[i];
        numbers(v.fused)[at] += fabs(w) * numbers(rows.fused)[i];
        numbers(v.steps)[at] += fabs(w) * numbers(rows.steps)[i] + s->rounding.tiny +
                                s->rounding.store * (parts ? numbers(absolute)[at] : fabs(numbers(v.y)[at]));
    }
    for (int64_t i = 0; !s->failed && i < N * D; i++) {
        const double size = numbers(absolute)[i],
                     off = (rounding_of_sum(s->rounding.sum, r->k) + s->rounding.sum) * size +
                           (double)r->k * s->rounding.sum_tiny +
                           (parts ? (sizes.parts - 1) * rounding_when_stored(&s->rounding, size, 0) : 0);
        numbers(v.fused)[i] += off, numbers(v.steps)[i] += off + s->rounding.store * size;
    }
    return v;
}

/* ---- the first product ------------------------------------------------------------------------------------------- */

static struct single_value up_forward(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->logits);
    const struct tensor X = single_act(s, n->in[0]);
    return single_going(s) ? products(s, n, &r, X, true, false) : single_stop(s);
}

static struct single_sizes sizes_of_rows(struct single *s, struct tensor y)
{
    const struct single_sizes sizes = { .absolute = single_new(s, tensor_rows(y), tensor_cols(y)), .parts = 1 };
    for (int64_t i = 0; !s->failed && i < tensor_count(y); i++) numbers(sizes.absolute)[i] = fabs(numbers(y)[i]);
    return sizes;
}

static struct single_value up_input(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->logits);
    const struct tensor dY = single_grad(s, n->out);
    if (!single_going(s)) return single_stop(s);
    const struct single_value rows = single_settled(s, products(s, n, &r, dY, false, true));
    return single_going(s) ? sum_rows(s, &r, rows, sizes_of_rows(s, rows.y), NULL) : single_stop(s);
}

static struct single_value up_weight(struct single *s, const struct single_node *n) { return weight_of(s, n, true); }

const struct single_operation single_experts_up = {
    .words = "the experts' first product",
    .forward = up_forward,
    .input_words = "the backward pass of the experts for their input",
    .input = { up_input },
    .weight_words = "the backward pass of an expert's first matrix for its weight",
    .weight = up_weight,
    .bias_words = "the backward pass of an expert's first matrix for its bias",
    .bias = bias,
    .by_rows = true,
    .weight_by_rows = true,
};

/* ---- the second -------------------------------------------------------------------------------------------------- */

static struct single_value down_forward(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->logits);
    const struct tensor X = single_act(s, n->in[0]);
    return single_going(s) ? products(s, n, &r, X, false, false) : single_stop(s);
}

static struct single_value down_input(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->logits);
    const struct tensor dY = single_grad(s, n->out);
    return single_going(s) ? products(s, n, &r, dY, false, true) : single_stop(s);
}

static struct single_value down_weight(struct single *s, const struct single_node *n) { return weight_of(s, n, false); }

const struct single_operation single_experts_down = {
    .words = "the experts' second product",
    .forward = down_forward,
    .input_words = "the backward pass of the experts' second product",
    .input = { down_input },
    .weight_words = "the backward pass of an expert's second matrix for its weight",
    .weight = down_weight,
    .bias_words = "the backward pass of an expert's second matrix for its bias",
    .bias = bias,
    .by_rows = true,
    .weight_by_rows = true,
};

/* ---- the weighted sum -------------------------------------------------------------------------------------------- */

/* Experts that return what they get: the sum of a token's weights of these, times X, is added. */
static bool has_identity(const struct single *s)
{
    return s->context->config->mixture.zero > 0 && !s->context->config->mixture.zero_is_null;
}

static struct single_value identity(struct single *s, const struct routing *r, struct tensor X, struct tensor weights)
{
    const int64_t D = tensor_cols(X);
    const struct single_value v = single_value_new(s, tensor_rows(X), D);
    for (int64_t n = 0; !s->failed && n < tensor_rows(X); n++) {
        const int32_t *chosen = (const int32_t *)r->experts.data + n * r->k;
        const double *w = numbers(weights) + n * r->k;
        double sum = 0, absolute = 0;
        for (int64_t i = 0; i < r->k; i++)
            if (chosen[i] >= r->E) sum += w[i], absolute += fabs(w[i]);
        for (int64_t d = n * D; d < (n + 1) * D; d++) {
            const double size = absolute * fabs(numbers(X)[d]);
            single_put(v, d, (struct element){ sum * numbers(X)[d],
                                               (rounding_of_sum(s->rounding.sum, r->k) + 3 * s->rounding.sum) * size +
                                                   (double)r->k * s->rounding.sum_tiny },
                       3 * s->rounding.store * size + (double)r->k * s->rounding.tiny);
        }
    }
    return v;
}

static struct single_value exact_rows(struct single *s, struct tensor y)
{
    struct single_value v = single_value_new(s, tensor_rows(y), tensor_cols(y));
    v.y = y;
    return v;
}

static struct single_value combine(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->logits);
    struct single_sizes sizes;
    const struct tensor rows = single_act_sized(s, n->in[0], &sizes), w = single_act(s, n->in[1]),
                        X = has_identity(s) ? single_act(s, n->in[2]) : tensor_none;
    if (!single_going(s)) return single_stop(s);
    struct single_value v[2] = { sum_rows(s, &r, exact_rows(s, rows), sizes, numbers(w)) };
    if (!has_identity(s)) return v[0];
    v[1] = identity(s, &r, X, w);
    return single_sum(s, v, 2);
}

/* The gradient of each row: its weight times that of its token. */
static struct single_value combine_rows(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->logits);
    const struct tensor dY = single_grad(s, n->out), w = single_act(s, n->in[1]);
    if (!single_going(s)) return single_stop(s);
    const int64_t D = tensor_cols(dY);
    const struct single_value v = single_value_new(s, r.rows, D);
    const double times = routing_times(s, &r);
    for (int64_t i = 0; !s->failed && i < r.rows * D; i++) {
        const double y = routing_weight(&r, i / D, w) * numbers(dY)[routing_token(&r, i / D) * D + i % D];
        /* Others multiply by a score, then divide by the sum of scores. */
        single_put(v, i, (struct element){ y, 8 * s->rounding.sum * fabs(y) + s->rounding.sum_tiny * times },
                   s->rounding.store * fabs(y) + s->rounding.tiny * times);
    }
    return v;
}

/* A choice's gradient: its row times the gradient of its token.  size: of the row, NULL: its own; ranks that have parts
 * of it each store a part of the gradient. */
static void put_dot(struct single *s, struct single_value v, int64_t at, const double *a, const double *size,
                    const double *b, int64_t D, int parts)
{
    double sum = 0, absolute = 0;
    for (int64_t d = 0; d < D; d++) sum += a[d] * b[d], absolute += fabs((size ? size[d] : a[d]) * b[d]);
    const double added = parts > 1 ? (parts - 1) * rounding_when_stored(&s->rounding, absolute, 0) : 0;
    single_put(v, at, (struct element){ sum, rounding_of_sum(s->rounding.sum, D) * absolute + added +
                                                 tiny_terms(s->rounding.sum_tiny, D) },
               s->rounding.store * absolute + tiny_terms(s->rounding.tiny, D));
}

static struct single_value combine_weights(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->logits);
    struct single_sizes sizes;
    const struct tensor dY = single_grad(s, n->out), rows = single_act_sized(s, n->in[0], &sizes),
                        X = has_identity(s) ? single_act(s, n->in[2]) : tensor_none;
    if (!single_going(s)) return single_stop(s);
    const int64_t D = tensor_cols(dY);
    const struct single_value v = single_value_new(s, tensor_rows(dY), r.k);
    for (int64_t i = 0; !s->failed && i < r.rows; i++)
        put_dot(s, v, ((const int32_t *)r.order.data)[i], numbers(rows) + i * D, numbers(sizes.absolute) + i * D,
                numbers(dY) + routing_token(&r, i) * D, D, sizes.parts);
    for (int64_t i = 0; has_identity(s) && !s->failed && i < tensor_count(r.experts); i++)
        if (((const int32_t *)r.experts.data)[i] >= r.E)
            put_dot(s, v, i, numbers(X) + i / r.k * D, NULL, numbers(dY) + i / r.k * D, D, 1);
    return v;
}

static struct single_value combine_identity(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->logits);
    const struct tensor dY = single_grad(s, n->out), w = single_act(s, n->in[1]);
    return single_going(s) ? identity(s, &r, dY, w) : single_stop(s);
}

const struct single_operation single_combine = {
    .words = "the weighted sum of the experts",
    .forward = combine,
    .input_words = "the backward pass of the weighted sum of the experts",
    .input = { combine_rows, combine_weights, combine_identity },
    .by_rows = true,
};
