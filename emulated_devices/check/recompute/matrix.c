/* matrix.c -- products with matrices.
 *
 * Y = X W^T + b.  The error of a sum in one format is rounding_of_sum() times |X| |W|^T + |b|; the result is stored.
 *
 * A product in P parts (rounding.parts, of a gradient rounding.gradient_parts; by steps also the parts of a matrix:
 * queries, keys, values) stores each part
 * and each sum of parts.  A product that is subnormal, and a stored part that is, are off by half the smallest step.
 * Which terms are in which part is not known, so their sizes are estimated: a sum of some of
 * the terms is a random walk, and seldom larger than |y| + 3 sqrt(sum of squared terms); all P parts together than
 * |y| + 3 sqrt(P sum of squares).
 */
#include "emulated_devices/check/recompute/products.h"
#include <string.h>

/* parts: that are stored, the most. */
static struct product_sum adding_new(struct single *s, int64_t rows, int64_t cols, int parts)
{
    struct product_sum a = { .sum = single_new(s, rows, cols), .absolute = single_new(s, rows, cols) };
    if (parts > 1) a.square = single_new(s, rows, cols);
    return a;
}

/* The sizes of P parts and of the sums of the first 2, 3, ..., P - 1 of them. */
static double parts_stored(double y, double absolute, double square, int parts)
{
    const double walk = 3 * sqrt(square), all = fabs(y) + sqrt(parts) * walk + (parts - 2) * (fabs(y) + walk),
                 most = (parts - 1) * absolute;
    return parts < 2 ? 0 : all < most ? all : most;
}

static void bound(struct single *s, const struct product_sum *a, int64_t terms, int parts, bool stored, struct tensor b)
{
    const struct rounding *r = &s->rounding;
    stored = stored && tensor_present(a->stored);
    const double sum = rounding_of_sum(r->sum, terms),
                 tiny = tiny_terms(r->sum_tiny, terms) + (parts > 1 ? 2 * parts * r->tiny : 0) + (stored ? r->tiny : 0);
    #pragma omp parallel for schedule(static) if (tensor_count(b) > SINGLE_PARALLEL_FROM)
    for (int64_t i = 0; i < (s->failed ? 0 : tensor_count(b)); i++) {
        const double y = numbers(a->sum)[i], absolute = numbers(a->absolute)[i],
                     on_the_way = (parts > 1 ? parts_stored(y, absolute, numbers(a->square)[i], parts) : 0) +
                                  (stored ? numbers(a->stored)[i] : 0);
        numbers(b)[i] = sum * absolute + r->store * on_the_way + tiny;
    }
}

/* Y += X W^T, W [O,I]; += dY W; += dY^T X. */
typedef void multiply_fn(const struct single *, struct tensor to, struct tensor left, struct tensor right);

static void by_transpose(const struct single *s, struct tensor Y, struct tensor X, struct tensor W)
{
    s->context->ops->linear_forward_add(Y, X, W);
}

static void as_it_is(const struct single *s, struct tensor dX, struct tensor dY, struct tensor W)
{
    s->context->ops->linear_backward_input_columns(dX, dY, 0, W, true);
}

static void over_rows(const struct single *s, struct tensor dW, struct tensor dY, struct tensor X)
{
    s->context->ops->linear_backward_weight(dW, tensor_none, dY, X);
}

static void map(struct tensor to, struct tensor t, bool squared)
{
    double *out = numbers(to);
    const double *x = numbers(t);
    #pragma omp parallel for schedule(static) if (tensor_count(t) > SINGLE_PARALLEL_FROM)
    for (int64_t i = 0; i < tensor_count(t); i++) out[i] = squared ? x[i] * x[i] : fabs(x[i]);
}

/* Add to the sums. */
static void add_product(struct single *s, struct product_sum *a, multiply_fn *multiply, struct tensor left,
                        struct tensor right)
{
    const int used = s->memory.used;
    const struct tensor l = single_new(s, tensor_rows(left), tensor_cols(left)),
                        r = single_new(s, tensor_rows(right), tensor_cols(right));
    if (s->failed) return;
    multiply(s, a->sum, left, right);
    map(l, left, false), map(r, right, false);
    multiply(s, a->absolute, l, r);
    if (tensor_present(a->square)) {
        map(l, left, true), map(r, right, true);
        multiply(s, a->square, l, r);
    }
    single_release(s, used);
}

static void add_bias(struct product_sum *a, struct tensor bias)
{
    const int64_t cols = tensor_cols(a->sum);
    for (int64_t i = 0; i < tensor_count(a->sum); i++) {
        const double b = numbers(bias)[i % cols];
        numbers(a->sum)[i] += b, numbers(a->absolute)[i] += fabs(b);
    }
}

/* matrices: that other programs multiply with one by one, and whose results they add. */
static struct single_value finish(struct single *s, const struct product_sum *a, int64_t terms, int parts, int matrices)
{
    const int64_t rows = tensor_rows(a->sum), cols = tensor_cols(a->sum);
    const struct single_value v = { .y = a->sum, .fused = single_new(s, rows, cols),
                                    .steps = single_new(s, rows, cols) };
    bound(s, a, terms, parts, false, v.fused);
    bound(s, a, terms, parts * matrices, true, v.steps);
    return v;
}

/* What has been added so far is stored. */
static void add_stored(struct single *s, struct product_sum *a)
{
    a->stored = single_new(s, tensor_rows(a->sum), tensor_cols(a->sum));
    for (int64_t i = 0; !s->failed && i < tensor_count(a->sum); i++) numbers(a->stored)[i] = fabs(numbers(a->sum)[i]);
}

struct single_value product(struct single *s, struct tensor X, struct tensor W, struct tensor b)
{
    struct product_sum a = adding_new(s, tensor_rows(X), tensor_rows(W), s->rounding.parts);
    const bool biased = tensor_present(b);
    add_product(s, &a, by_transpose, X, W);
    if (!s->failed && biased) add_stored(s, &a);
    if (!s->failed && biased) add_bias(&a, b);
    return finish(s, &a, tensor_cols(W) + biased, s->rounding.parts, 1);
}

struct single_value product_input(struct single *s, struct tensor dY, struct tensor W, int matrices)
{
    struct product_sum a = adding_new(s, tensor_rows(dY), tensor_cols(W), s->rounding.parts * matrices);
    add_product(s, &a, as_it_is, dY, W);
    return finish(s, &a, tensor_rows(W), s->rounding.parts, matrices);
}

/* Some columns of a matrix; of a vector, some of its numbers. */
static struct tensor columns_of(struct single *s, struct tensor t, struct single_block of)
{
    if (!tensor_present(t) || of.rows == tensor_cols(t)) return t;
    const struct tensor some = single_new(s, tensor_rows(t), of.rows);
    for (int64_t i = 0; !s->failed && i < tensor_rows(t); i++)
        memcpy(numbers(some) + i * of.rows, numbers(t) + i * tensor_cols(t) + of.first,
               (size_t)of.rows * sizeof(double));
    return some;
}

static void put_columns(struct tensor to, struct tensor from, int64_t first)
{
    for (int64_t i = 0; i < tensor_rows(from); i++)
        memcpy(numbers(to) + i * tensor_cols(to) + first, numbers(from) + i * tensor_cols(from),
               (size_t)tensor_cols(from) * sizeof(double));
}

/* The blocks of a matrix, one after another.  @return whether there is one more. */
static bool next_block(const struct single *s, struct param_spec p, struct single_block *block)
{
    const int64_t first = block->first + block->rows, left = p.dim[0] - first, most = single_block(s, p.dim[1]);
    *block = (struct single_block){ first, left < most ? left : most };
    return left > 0 && single_going(s);
}

/* A block of the matrix gives some columns of the result. */
static struct single_value forward(struct single *s, const struct single_node *n)
{
    const struct param_spec p = model_param(s->context->config, n->weight);
    const struct tensor X = single_act(s, n->in[0]), b = single_param(s, n->bias);
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = single_value_new(s, tensor_rows(X), p.dim[0]);
    const int used = s->memory.used;
    for (struct single_block block = { 0, 0 }; next_block(s, p, &block);) {
        const struct tensor W = single_param_block(s, n->weight, block);
        const struct single_value one =
            single_going(s) ? product(s, X, W, columns_of(s, b, block)) : single_stop(s);
        if (single_going(s)) put_columns(v.y, one.y, block.first), put_columns(v.fused, one.fused, block.first);
        if (single_going(s)) put_columns(v.steps, one.steps, block.first);
        single_release(s, used);
    }
    return single_going(s) ? v : single_stop(s);
}

static struct single_value input(struct single *s, const struct single_node *n)
{
    const struct param_spec p = model_param(s->context->config, n->weight);
    const struct tensor dY = single_grad(s, n->out);
    if (!single_going(s)) return single_stop(s);
    struct product_sum a = adding_new(s, tensor_rows(dY), p.dim[1], s->rounding.parts * n->matrices);
    const int used = s->memory.used;
    for (struct single_block block = { 0, 0 }; next_block(s, p, &block);) {
        const struct tensor W = single_param_block(s, n->weight, block), dy = columns_of(s, dY, block);
        if (single_going(s)) add_product(s, &a, as_it_is, dy, W);
        single_release(s, used);
    }
    return single_going(s) ? finish(s, &a, p.dim[0], s->rounding.parts, n->matrices) : single_stop(s);
}

/* ---- gradients: sums over rows ----------------------------------------------------------------------------------- */

struct product_sum product_weight_begin(struct single *s, int64_t out, int64_t in)
{
    return adding_new(s, out, in, s->rounding.gradient_parts);
}

struct product_sum product_bias_begin(struct single *s, int64_t out) { return product_weight_begin(s, 1, out); }

void product_weight_add(struct single *s, struct product_sum *a, struct tensor dY, struct tensor X)
{
    add_product(s, a, over_rows, dY, X);
    a->terms += tensor_rows(dY);
}

void product_bias_add(struct single *s, struct product_sum *a, struct tensor dY)
{
    const int64_t cols = tensor_cols(dY);
    a->terms += tensor_rows(dY);
    for (int64_t i = 0; !s->failed && i < tensor_count(dY); i++) {
        const double y = numbers(dY)[i];
        numbers(a->sum)[i % cols] += y, numbers(a->absolute)[i % cols] += fabs(y);
        if (tensor_present(a->square)) numbers(a->square)[i % cols] += y * y;
    }
}

struct single_value product_weight_end(struct single *s, const struct product_sum *a)
{
    return finish(s, a, a->terms, s->rounding.gradient_parts, 1);
}

/* dW and its bounds, or some rows of it, tile after tile. */
static struct single_value weight(struct single *s, const struct single_node *n)
{
    const struct param_spec p = model_param(s->context->config, n->weight);
    const struct single_block block = single_block_of(s, p.dim[0]);
    struct product_sum a = product_weight_begin(s, block.rows, p.dim[1]);
    const int used = s->memory.used;
    for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);) {
        const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
        if (single_going(s)) product_weight_add(s, &a, columns_of(s, dY, block), X);
        single_release(s, used);
    }
    single_take_all(s);
    return single_going(s) ? product_weight_end(s, &a) : single_stop(s);
}

/* The same of a bias. */
static struct single_value bias(struct single *s, const struct single_node *n)
{
    struct product_sum a = product_bias_begin(s, single_slot(s, n->out)->cols);
    const int used = s->memory.used;
    for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);) {
        const struct tensor dY = single_grad(s, n->out);
        if (single_going(s)) product_bias_add(s, &a, dY);
        single_release(s, used);
    }
    single_take_all(s);
    return single_going(s) ? product_weight_end(s, &a) : single_stop(s);
}

const struct single_operation single_matrix = {
    .words = "the product with its matrix",
    .forward = forward,
    .input_words = "the backward pass of a matrix for its input",
    .input = { input },
    .weight_words = "the backward pass of a matrix for its weight",
    .weight = weight,
    .bias_words = "the backward pass of a matrix for its bias",
    .bias = bias,
    .by_rows = true,
    .weight_by_rows = true,
    .in_blocks = true,
};
