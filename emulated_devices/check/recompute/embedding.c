/* embedding.c -- rows of tokens and of positions, and their gradients.
 *
 * The gradient of a row is a sum over its tokens, in any order; by steps the sum is stored after each of them.  If the
 * matrix is also the output matrix, these rows may be added to its gradient one by one.
 */
#include "emulated_devices/check/recompute/parts.h"
#include <string.h>

static int64_t token(const struct single *s, int64_t row) { return s->cursor.batch.ids[row % s->cursor.N]; }

static struct single_value embed(struct single *s, const struct single_node *n)
{
    const struct single_slot *out = single_slot(s, n->out);
    const int64_t rows = model_param(s->context->config, n->weight).dim[0], D = out->cols, most = single_block(s, D);
    const struct single_value v = single_value_new(s, single_rows(s, out), D);
    const int used = s->memory.used;
    for (int64_t first = 0; first < rows && single_going(s); first += most) {
        const struct single_block block = { first, rows - first < most ? rows - first : most };
        const struct tensor W = single_param_block(s, n->weight, block);
        for (int64_t i = 0; single_going(s) && i < tensor_rows(v.y); i++) {
            const int64_t row = token(s, i) - first;
            if (row >= 0 && row < block.rows)
                memcpy(numbers(v.y) + i * D, numbers(W) + row * D, (size_t)D * sizeof(double));
        }
        single_release(s, used);
    }
    return single_going(s) ? v : single_stop(s);
}

static struct single_value place(struct single *s, const struct single_node *n)
{
    const struct single_value X = single_value_of(s, n->in[0]);
    const struct tensor W = single_param(s, n->weight);
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = single_value_new(s, tensor_rows(X.y), tensor_cols(X.y));
    for (int64_t i = 0; !s->failed && i < tensor_count(v.y); i++) {
        const int64_t D = tensor_cols(X.y);
        const double x = numbers(X.y)[i], w = numbers(W)[i / D % s->cursor.batch.S * D + i % D],
                     off = s->rounding.sum * (fabs(x) + fabs(w));
        numbers(v.y)[i] = x + w;
        numbers(v.fused)[i] = numbers(X.fused)[i] + off, numbers(v.steps)[i] = numbers(X.steps)[i] + off;
    }
    return v;
}

/* A gradient of rows that are added up: absolute: their sizes; count: of each row of the matrix, or of a block. */
struct scattered { struct single_value v; struct tensor absolute, count; struct single_block block; };

/* dW[row of n] += dY[n]. */
static void add_gradients(const struct single *s, struct scattered *to, struct single_value dY, bool tokens)
{
    const int64_t D = tensor_cols(dY.y);
    const struct single_value v = to->v;
    for (int64_t i = 0; !s->failed && i < tensor_count(dY.y); i++) {
        const int64_t row = (tokens ? token(s, i / D) : i / D % s->cursor.batch.S) - to->block.first,
                      at = row * D + i % D;
        if (row < 0 || row >= to->block.rows) continue;
        numbers(to->count)[row] += i % D == 0;
        numbers(v.y)[at] += numbers(dY.y)[i], numbers(to->absolute)[at] += fabs(numbers(dY.y)[i]);
        numbers(v.fused)[at] += numbers(dY.fused)[i];
        numbers(v.steps)[at] += numbers(dY.steps)[i] - numbers(dY.fused)[i] +
                                s->rounding.store * fabs(numbers(v.y)[at]);
    }
}

/* The gradient of a matrix of tokens or positions, tile after tile. */
static struct single_value scatter(struct single *s, const struct single_node *n, bool tokens)
{
    const struct single_block block = single_block_of(s, model_param(s->context->config, n->weight).dim[0]);
    const int64_t rows = block.rows, D = single_slot(s, n->out)->cols;
    struct scattered all = { single_value_new(s, rows, D), single_new(s, rows, D), single_new(s, rows, 1), block };
    const int used = s->memory.used;
    for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);) {
        const struct single_value dY = single_gradient_of(s, n->out);
        if (single_going(s)) add_gradients(s, &all, dY, tokens);
        single_release(s, used);
    }
    single_take_all(s);
    if (!single_going(s)) return single_stop(s);
    struct single_value v = all.v;
    const struct tensor absolute = all.absolute, count = all.count;
    for (int64_t i = 0; !s->failed && i < rows * D; i++) {
        const int64_t terms = (int64_t)numbers(count)[i / D];
        const double off = rounding_of_sum(s->rounding.sum, terms) * numbers(absolute)[i],
                     parts = s->rounding.gradient_parts > 1 ? s->rounding.gradient_parts * s->rounding.store *
                                                                  numbers(absolute)[i] : 0;
        single_put(v, i, (struct element){ numbers(v.y)[i], numbers(v.fused)[i] + (terms > 0 ? off + parts : 0) },
                   numbers(v.steps)[i]);
        v.terms = terms > v.terms ? terms : v.terms;
    }
    return v;
}

static struct single_value of_tokens(struct single *s, const struct single_node *n) { return scatter(s, n, true); }
static struct single_value of_positions(struct single *s, const struct single_node *n) { return scatter(s, n, false); }
static struct single_value handed_on(struct single *s, const struct single_node *n)
{
    return single_gradient_of(s, n->out);
}

const struct single_operation single_embed = {
    .words = "the embedding",
    .forward = embed,
    .weight_words = "the backward pass of the embedding",
    .weight = of_tokens,
    .by_rows = true,
    .weight_by_rows = true,
    .in_blocks = true,
};

const struct single_operation single_positions = {
    .words = "the embedding",
    .forward = place,
    .input_words = "the sum, backward",
    .input = { handed_on },
    .passes_on = true,
    .weight_words = "the backward pass of the embedding",
    .weight = of_positions,
    .in_blocks = true,
};
