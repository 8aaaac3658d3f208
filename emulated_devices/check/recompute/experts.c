/* experts.c -- a mixture's experts: two products, each expert's with its own matrix, and the weighted sum.
 *
 * Rows are choices, sorted by expert, then by token.  Products and their bounds are those of matrix.c.  The gradient of
 * a token is the sum over its choices, each rounded; by steps all sums are stored.
 * walk.c runs the passes.  Choices come from routing.h, so a token's rows are those that the program's own logits
 * choose.
 */
#include "emulated_devices/check/recompute/products.h"
#include "emulated_devices/check/recompute/routing.h"
#include "ref/model/config.h"
#include <string.h>

/* An expert's rows begin behind those of all experts before it. */
static int64_t first_row(const struct routing *routing, int64_t expert)
{
    int64_t first = 0;
    for (int64_t e = 0; e < expert; e++) first += routing_count(routing, e);
    return first;
}

/* Gather the rows of one expert.  X has a row for each choice, or with `tokens` a row for each token. */
static struct tensor experts_rows_of(struct single *single, const struct routing *routing, int64_t expert,
                                     struct tensor X, bool tokens)
{
    const int64_t first = first_row(routing, expert), n = routing_count(routing, expert), cols = tensor_cols(X);
    const struct tensor out = single_new(single, n, cols);
    for (int64_t i = 0; !single->failed && i < n; i++)
        memcpy(numbers(out) + i * cols, numbers(X) + (tokens ? routing_token(routing, first + i) : first + i) * cols,
               (size_t)cols * sizeof(double));
    return out;
}

/* Write rows from `first` on. */
static void put_rows(struct tensor to, int64_t first, struct tensor from)
{
    memcpy(numbers(to) + first * tensor_cols(to), from.data, tensor_bytes(from));
}

/* Compute a product for each expert that has rows: Y = X W^T, or backward dX = dY W. */
static struct single_value products(struct single *single, const struct single_node *node,
                                    const struct routing *routing, struct tensor X, bool tokens, bool back)
{
    const struct param_spec p = single_spec(single, node->weight);
    const struct single_value v = single_value_new(single, routing->rows, back ? p.dim[1] : p.dim[0]);
    for (int64_t e = 0; e < routing->E && single_going(single); e++) {
        const int used = single->memory.used;
        const int64_t first = first_row(routing, e);
        if (routing_count(routing, e) == 0) continue;
        /* Expert e's matrix is `stride` parameters behind that of the expert before. */
        const struct tensor W = single_param(single, node->weight + (int)e * node->stride),
            x = experts_rows_of(single, routing, e, X, tokens),
                            b = back || node->bias < 0 ? tensor_none
                                : single_param(single, node->bias + (int)e * node->stride);
        if (single_going(single)) {
            /* Y_e [rows, out] = X_e [rows, in] W_e^T, or backward dX_e = dY_e W_e. */
            const struct single_value one = back ? product_input(single, x, W, node->matrices)
                : product(single, x, W, b);
            if (!single->failed) put_rows(v.y, first, one.y), put_rows(v.fused, first, one.fused);
            if (!single->failed) put_rows(v.steps, first, one.steps);
        }
        single_release(single, used);
    }
    return v;
}

/* One expert's dW [out, in] = dY^T X is added up over its rows, tile after tile.  cursor.one_expert hides the rows
 * of all others. */
static struct single_value experts_weight_of(struct single *single, const struct single_node *node, bool tokens)
{
    const struct param_spec p = single_spec(single, node->weight);
    struct product_sum a = product_weight_begin(single, p.dim[0], p.dim[1]);
    const int used = single->memory.used;
    single->cursor.one_expert = true;
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct routing r = routing_of(single, node->logits);
        const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
        /* dW [out, in] += dY_e^T X_e with the rows of this tile that choose the expert. */
        if (single_going(single))
            product_weight_add(single, &a, experts_rows_of(single, &r, single->cursor.expert, dY, false),
                               experts_rows_of(single, &r, single->cursor.expert, X, tokens));
        single_release(single, used);
    }
    single_take_all(single);
    single->cursor.one_expert = false;
    return single_going(single) ? product_weight_end(single, &a) : single_stop(single);
}

/* Compute db [out] of one expert: the sum of its rows of dY. */
static struct single_value experts_bias(struct single *single, const struct single_node *node)
{
    struct product_sum a = product_bias_begin(single, single_slot(single, node->out)->cols);
    const int used = single->memory.used;
    single->cursor.one_expert = true;
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct routing r = routing_of(single, node->logits);
        const struct tensor dY = single_grad(single, node->out);
        /* db [out] += the sum over this tile's rows of dY that choose the expert. */
        if (single_going(single))
            product_bias_add(single, &a, experts_rows_of(single, &r, single->cursor.expert, dY, false));
        single_release(single, used);
    }
    single_take_all(single);
    single->cursor.one_expert = false;
    return single_going(single) ? product_weight_end(single, &a) : single_stop(single);
}

/* Add the rows of each token: Y[n] += w_i rows_i.  times: the factor of each choice, NULL for 1.  By steps each sum
 * is stored.  If ranks have parts of the rows, each rank stores its part of the sum.  Sums of parts are stored,
 * too. */
static struct single_value sum_rows(struct single *single, const struct routing *routing, struct single_value rows,
                                    struct single_sizes sizes, const double *times)
{
    const int64_t N = tensor_rows(routing->logits), D = tensor_cols(rows.y);
    const struct single_value v = single_value_new(single, N, D);
    const struct tensor absolute = single_new(single, N, D);
    const bool parts = sizes.parts > 1;
    /* Elements of all rows go to their token's row, in order of experts. */
    for (int64_t i = 0; !single->failed && i < routing->rows * D; i++) {
        const int64_t at = routing_token(routing, i / D) * D + i % D;
        const double w = times ? times[((const int32_t *)routing->order.data)[i / D]] : 1;
        numbers(v.y)[at] += w * numbers(rows.y)[i], numbers(absolute)[at] += fabs(w) * numbers(sizes.absolute)[i];
        numbers(v.fused)[at] += fabs(w) * numbers(rows.fused)[i];
        numbers(v.steps)[at] += fabs(w) * numbers(rows.steps)[i] + single->rounding.tiny +
                                single->rounding.store * (parts ? numbers(absolute)[at] : fabs(numbers(v.y)[at]));
    }
    /* The bound of each sum follows the absolute terms that were added. */
    for (int64_t i = 0; !single->failed && i < N * D; i++) {
        const double size = numbers(absolute)[i],
                     off = (rounding_of_sum(single->rounding.sum, routing->k) + single->rounding.sum) * size +
                           (double)routing->k * single->rounding.sum_tiny +
                           (parts ? (sizes.parts - 1) * rounding_when_stored(&single->rounding, size, 0) : 0);
        numbers(v.fused)[i] += off, numbers(v.steps)[i] += off + single->rounding.store * size;
    }
    return v;
}

/* ---- the first product ------------------------------------------------------------------------------------------- */

/* Y [rows, 2 F] = X W_e^T: a token's row is multiplied by the matrix of each expert that it chose. */
static struct single_value up_forward(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->logits);
    const struct tensor X = single_act(single, node->in[0]);
    return single_going(single) ? products(single, node, &r, X, true, false) : single_stop(single);
}

/* Rows that no rank has parts of: their sizes are their absolute values. */
static struct single_sizes sizes_of_rows(struct single *single, struct tensor y)
{
    const struct single_sizes sizes = { .absolute = single_new(single, tensor_rows(y), tensor_cols(y)), .parts = 1 };
    for (int64_t i = 0; !single->failed && i < tensor_count(y); i++) numbers(sizes.absolute)[i] = fabs(numbers(y)[i]);
    return sizes;
}

/* Compute dX [N, D]: the sum over a token's choices of dY W_e.  Each row is stored before it is added. */
static struct single_value up_input(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->logits);
    const struct tensor dY = single_grad(single, node->out);
    if (!single_going(single)) return single_stop(single);
    const struct single_value rows = single_settled(single, products(single, node, &r, dY, false, true));
    return single_going(single) ? sum_rows(single, &r, rows, sizes_of_rows(single, rows.y), NULL) : single_stop(single);
}

static struct single_value up_weight(struct single *single, const struct single_node *node)
{
    return experts_weight_of(single, node, true);
}

const struct single_operation single_experts_up = {
    .words = "the experts' first product",
    .forward = up_forward,
    .input_words = "the backward pass of the experts for their input",
    .input = { up_input },
    .weight_words = "the backward pass of an expert's first matrix for its weight",
    .weight = up_weight,
    .bias_words = "the backward pass of an expert's first matrix for its bias",
    .bias = experts_bias,
    .by_rows = true,
    .weight_by_rows = true,
};

/* ---- the second -------------------------------------------------------------------------------------------------- */

/* Y [rows, D] = X W_e^T; X are the rows behind the activation. */
static struct single_value down_forward(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->logits);
    const struct tensor X = single_act(single, node->in[0]);
    return single_going(single) ? products(single, node, &r, X, false, false) : single_stop(single);
}

static struct single_value down_input(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->logits);
    const struct tensor dY = single_grad(single, node->out);
    return single_going(single) ? products(single, node, &r, dY, false, true) : single_stop(single);
}

static struct single_value down_weight(struct single *single, const struct single_node *node)
{
    return experts_weight_of(single, node, false);
}

const struct single_operation single_experts_down = {
    .words = "the experts' second product",
    .forward = down_forward,
    .input_words = "the backward pass of the experts' second product",
    .input = { down_input },
    .weight_words = "the backward pass of an expert's second matrix for its weight",
    .weight = down_weight,
    .bias_words = "the backward pass of an expert's second matrix for its bias",
    .bias = experts_bias,
    .by_rows = true,
    .weight_by_rows = true,
};

/* ---- the weighted sum -------------------------------------------------------------------------------------------- */

/* Whether some experts return what they get.  A token's weights of these, added up and times X, are added to the
 * sum. */
static bool has_identity(const struct single *single)
{
    return single->context->config->mixture.zero > 0 && !single->context->config->mixture.zero_is_null;
}

/* Multiply X by the sum of a token's weights of such experts; these have numbers from E on. */
static struct single_value identity(struct single *single, const struct routing *routing, struct tensor X,
                                    struct tensor weights)
{
    const int64_t D = tensor_cols(X);
    const struct single_value v = single_value_new(single, tensor_rows(X), D);
    for (int64_t n = 0; !single->failed && n < tensor_rows(X); n++) {
        const int32_t *chosen = (const int32_t *)routing->experts.data + n * routing->k;
        const double *w = numbers(weights) + n * routing->k;
        double sum = 0, absolute = 0;
        for (int64_t i = 0; i < routing->k; i++)
            if (chosen[i] >= routing->E) sum += w[i], absolute += fabs(w[i]);
        for (int64_t d = n * D; d < (n + 1) * D; d++) {
            const double size = absolute * fabs(numbers(X)[d]);
            single_put(v, d, (struct element){ sum * numbers(X)[d],
                                               (rounding_of_sum(single->rounding.sum, routing->k) + 3
                                                * single->rounding.sum) * size +
                                                   (double)routing->k * single->rounding.sum_tiny },
                       3 * single->rounding.store * size + (double)routing->k * single->rounding.tiny);
        }
    }
    return v;
}

/* The program's own rows are exact, so their bounds are zero. */
static struct single_value exact_rows(struct single *single, struct tensor y)
{
    struct single_value v = single_value_new(single, tensor_rows(y), tensor_cols(y));
    v.y = y;
    return v;
}

/* Y [N, D] = sum over a token's choices of weight times row. */
static struct single_value combine(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->logits);
    struct single_sizes sizes;
    const struct tensor rows = single_act_sized(single, node->in[0], &sizes), w = single_act(single, node->in[1]),
                        X = has_identity(single) ? single_act(single, node->in[2]) : tensor_none;
    if (!single_going(single)) return single_stop(single);
    struct single_value v[2] = { sum_rows(single, &r, exact_rows(single, rows), sizes, numbers(w)) };
    if (!has_identity(single)) return v[0];
    v[1] = identity(single, &r, X, w);
    return single_sum(single, v, 2);
}

/* The gradient of each row is its weight times the gradient of its token. */
static struct single_value combine_rows(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->logits);
    const struct tensor dY = single_grad(single, node->out), w = single_act(single, node->in[1]);
    if (!single_going(single)) return single_stop(single);
    const int64_t D = tensor_cols(dY);
    const struct single_value v = single_value_new(single, r.rows, D);
    const double times = routing_times(single, &r);
    for (int64_t i = 0; !single->failed && i < r.rows * D; i++) {
        const double y = routing_weight(&r, i / D, w) * numbers(dY)[routing_token(&r, i / D) * D + i % D];
        /* Others multiply by a score, then divide by the sum of scores. */
        single_put(v, i, (struct element){ y, 8 * single->rounding.sum * fabs(y) + single->rounding.sum_tiny * times },
                   single->rounding.store * fabs(y) + single->rounding.tiny * times);
    }
    return v;
}

/* Write a choice's gradient: its row times the gradient of its token.  size: of the row, NULL: its own.  Ranks with
 * parts of the row each store a part. */
static void put_dot(struct single *single, struct single_value value, int64_t at, const double *a, const double *size,
                    const double *b, int64_t D, int parts)
{
    double sum = 0, absolute = 0;
    for (int64_t d = 0; d < D; d++) sum += a[d] * b[d], absolute += fabs((size ? size[d] : a[d]) * b[d]);
    const double added = parts > 1 ? (parts - 1) * rounding_when_stored(&single->rounding, absolute, 0) : 0;
    single_put(value, at, (struct element){ sum, rounding_of_sum(single->rounding.sum, D) * absolute + added +
                                                 tiny_terms(single->rounding.sum_tiny, D) },
               single->rounding.store * absolute + tiny_terms(single->rounding.tiny, D));
}

/* dw [N, k] = (row of the choice, dY of its token). */
static struct single_value combine_weights(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->logits);
    struct single_sizes sizes;
    const struct tensor dY = single_grad(single, node->out), rows = single_act_sized(single, node->in[0], &sizes),
                        X = has_identity(single) ? single_act(single, node->in[2]) : tensor_none;
    if (!single_going(single)) return single_stop(single);
    const int64_t D = tensor_cols(dY);
    const struct single_value v = single_value_new(single, tensor_rows(dY), r.k);
    /* A row of an expert gives the weight of its own choice: dw = row . dY[token]. */
    for (int64_t i = 0; !single->failed && i < r.rows; i++)
        put_dot(single, v, ((const int32_t *)r.order.data)[i], numbers(rows) + i * D, numbers(sizes.absolute) + i * D,
                numbers(dY) + routing_token(&r, i) * D, D, sizes.parts);
    /* An identity expert's result is the token itself, so X stands in place of the row. */
    for (int64_t i = 0; has_identity(single) && !single->failed && i < tensor_count(r.experts); i++)
        if (((const int32_t *)r.experts.data)[i] >= r.E)
            put_dot(single, v, i, numbers(X) + i / r.k * D, NULL, numbers(dY) + i / r.k * D, D, 1);
    return v;
}

/* This is the gradient that experts without computation hand back: dY times their weights. */
static struct single_value combine_identity(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->logits);
    const struct tensor dY = single_grad(single, node->out), w = single_act(single, node->in[1]);
    return single_going(single) ? identity(single, &r, dY, w) : single_stop(single);
}

const struct single_operation single_combine = {
    .words = "the weighted sum of the experts",
    .forward = combine,
    .input_words = "the backward pass of the weighted sum of the experts",
    .input = { combine_rows, combine_weights, combine_identity },
    .by_rows = true,
};
