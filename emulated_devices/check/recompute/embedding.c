/* embedding.c -- rows of tokens and of positions, and their gradients.
 *
 * The gradient of a row is a sum over its tokens, in any order; by steps the sum is stored after each of them.  If the
 * matrix is also the output matrix, these rows may be added to its gradient one by one.
 * walk.c runs the passes.  Matrices with V rows are read some rows at a time, so memory does not grow with the
 * vocabulary.
 */
#include "emulated_devices/check/recompute/parts.h"
#include <string.h>

/* A row has this token; with streams the rows of all streams have the same tokens. */
static int64_t token(const struct single *single, int64_t row)
{
    return single->cursor.batch.ids[row % single->cursor.N];
}

/* Y [N, D] = W[ids]: copies of rows, which round nothing.  Each block of W fills the rows of its own tokens. */
static struct single_value embed(struct single *single, const struct single_node *node)
{
    const struct single_slot *out = single_slot(single, node->out);
    const int64_t rows = single_spec(single, node->weight).dim[0], D = out->cols,
        most = single_block(single, D);
    const struct single_value v = single_value_new(single, single_rows(single, out), D);
    const int used = single->memory.used;
    for (int64_t first = 0; first < rows && single_going(single); first += most) {
        const struct single_block block = { first, rows - first < most ? rows - first : most };
        const struct tensor W = single_param_block(single, node->weight, block);
        /* Y[i] = W[token i] for tokens whose row is in this block. */
        for (int64_t i = 0; single_going(single) && i < tensor_rows(v.y); i++) {
            const int64_t row = token(single, i) - first;
            if (row >= 0 && row < block.rows)
                memcpy(numbers(v.y) + i * D, numbers(W) + row * D, (size_t)D * sizeof(double));
        }
        single_release(single, used);
    }
    return single_going(single) ? v : single_stop(single);
}

/* Y = X + W[position]: each sequence begins at position 0. */
static struct single_value embedding_place(struct single *single, const struct single_node *node)
{
    const struct single_value X = single_value_of(single, node->in[0]);
    const struct tensor W = single_param(single, node->weight);
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = single_value_new(single, tensor_rows(X.y), tensor_cols(X.y));
    /* Y [N, D] = X + W[position], and the bounds of X are passed on. */
    for (int64_t i = 0; !single->failed && i < tensor_count(v.y); i++) {
        const int64_t D = tensor_cols(X.y);
        const double x = numbers(X.y)[i], w = numbers(W)[i / D % single->cursor.batch.S * D + i % D],
                     off = single->rounding.sum * (fabs(x) + fabs(w));
        numbers(v.y)[i] = x + w;
        numbers(v.fused)[i] = numbers(X.fused)[i] + off, numbers(v.steps)[i] = numbers(X.steps)[i] + off;
    }
    return v;
}

/* This is a gradient of rows that are added up.  absolute: the sum of absolute values; count: terms of each row of
 * the block. */
struct scattered { struct single_value v; struct tensor absolute, count; struct single_block block; };

/* dW[row of n] += dY[n]: tokens or positions choose the row.  By steps the sum is stored after each term. */
static void add_gradients(const struct single *single, struct scattered *to, struct single_value dY, bool tokens)
{
    const int64_t D = tensor_cols(dY.y);
    const struct single_value v = to->v;
    for (int64_t i = 0; !single->failed && i < tensor_count(dY.y); i++) {
        const int64_t row = (tokens ? token(single, i / D) : i / D % single->cursor.batch.S) - to->block.first,
                      at = row * D + i % D;
        /* Tokens outside this block add nothing. */
        if (row < 0 || row >= to->block.rows) continue;
        numbers(to->count)[row] += i % D == 0;
        numbers(v.y)[at] += numbers(dY.y)[i], numbers(to->absolute)[at] += fabs(numbers(dY.y)[i]);
        numbers(v.fused)[at] += numbers(dY.fused)[i];
        numbers(v.steps)[at] += numbers(dY.steps)[i] - numbers(dY.fused)[i] +
                                single->rounding.store * fabs(numbers(v.y)[at]);
    }
}

/* The gradient of a matrix of tokens or positions is added up tile after tile.  A large matrix is computed a block
 * of rows at a time. */
static struct single_value embedding_scatter(struct single *single, const struct single_node *node, bool tokens)
{
    const struct single_block block = single_block_of(single,
                                                      single_spec(single, node->weight).dim[0]);
    const int64_t rows = block.rows, D = single_slot(single, node->out)->cols;
    struct scattered all = { single_value_new(single, rows, D), single_new(single, rows, D),
                            single_new(single, rows, 1), block };
    const int used = single->memory.used;
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct single_value dY = single_gradient_of(single, node->out);
        if (single_going(single)) add_gradients(single, &all, dY, tokens);
        single_release(single, used);
    }
    single_take_all(single);
    if (!single_going(single)) return single_stop(single);
    struct single_value v = all.v;
    const struct tensor absolute = all.absolute, count = all.count;
    /* The bounds of a row depend on how many tokens have been added to it. */
    for (int64_t i = 0; !single->failed && i < rows * D; i++) {
        const int64_t terms = (int64_t)numbers(count)[i / D];
        const double off = rounding_of_sum(single->rounding.sum, terms) * numbers(absolute)[i],
                     parts = single->rounding.gradient_parts > 1
                         ? single->rounding.gradient_parts * single->rounding.store *
                                                                  numbers(absolute)[i] : 0;
        single_put(v, i, (struct element){ numbers(v.y)[i], numbers(v.fused)[i] + (terms > 0 ? off + parts : 0) },
                   numbers(v.steps)[i]);
        v.terms = terms > v.terms ? terms : v.terms;
    }
    return v;
}

static struct single_value of_tokens(struct single *single, const struct single_node *node)
{
    return embedding_scatter(single, node, true);
}
static struct single_value of_positions(struct single *single, const struct single_node *node)
{
    return embedding_scatter(single, node, false);
}
static struct single_value handed_on(struct single *single, const struct single_node *node)
{
    return single_gradient_of(single, node->out);
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
    .forward = embedding_place,
    .input_words = "the sum, backward",
    .input = { handed_on },
    .passes_on = true,
    .weight_words = "the backward pass of the embedding",
    .weight = of_positions,
    .in_blocks = true,
};
