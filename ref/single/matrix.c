/* matrix.c -- products with matrices.
 *
 * Y = X W^T + b.  The error of a sum in one format is rounding_of_sum() times |X| |W|^T + |b|; the result is stored.
 *
 * A product in P parts (rounding.parts; by steps also the parts of a matrix: queries, keys, values) stores each part
 * and each sum of parts.  Which terms are in which part is not known, so their sizes are estimated: a sum of some of
 * the terms is a random walk, and seldom larger than |y| + 3 sqrt(sum of squared terms); all P parts together than
 * |y| + 3 sqrt(P sum of squares).
 */
#include "ref/single/products.h"

/* What is added up: the sum, the sums of absolute and squared terms, and what is stored on the way. */
struct adding { struct tensor sum, absolute, square, stored; };

static struct adding adding_new(struct single *s, int64_t rows, int64_t cols)
{
    return (struct adding){ single_new(s, rows, cols), single_new(s, rows, cols), single_new(s, rows, cols),
                            single_new(s, rows, cols) };
}

/* The sizes of P parts and of the sums of the first 2, 3, ..., P - 1 of them. */
static double parts_stored(double y, double absolute, double square, int parts)
{
    const double walk = 3 * sqrt(square), all = fabs(y) + sqrt(parts) * walk + (parts - 2) * (fabs(y) + walk),
                 most = (parts - 1) * absolute;
    return parts < 2 ? 0 : all < most ? all : most;
}

static void bound(struct single *s, const struct adding *a, double sum, int parts, bool stored, struct tensor b)
{
    const struct rounding *r = &s->rounding;
    for (int64_t i = 0; !s->failed && i < tensor_count(b); i++) {
        const double y = numbers(a->sum)[i], absolute = numbers(a->absolute)[i],
                     on_the_way = parts_stored(y, absolute, numbers(a->square)[i], parts) +
                                  (stored ? numbers(a->stored)[i] : 0);
        numbers(b)[i] = sum * absolute + r->store * on_the_way + (parts > 1 ? 2 * parts * r->tiny : 0);
    }
}

static struct tensor map(struct single *s, struct tensor t, bool squared)
{
    const struct tensor m = single_new(s, tensor_rows(t), tensor_cols(t));
    for (int64_t i = 0; !s->failed && i < tensor_count(m); i++) {
        const double x = numbers(t)[i];
        numbers(m)[i] = squared ? x * x : fabs(x);
    }
    return m;
}

/* Add X W^T, W [O,I]. */
static void add_product(struct single *s, struct adding *a, struct tensor X, struct tensor W)
{
    const struct tensor absX = map(s, X, false), absW = map(s, W, false), sqX = map(s, X, true), sqW = map(s, W, true);
    if (s->failed) return;
    s->ops->linear_forward_add(a->sum, X, W);
    s->ops->linear_forward_add(a->absolute, absX, absW);
    s->ops->linear_forward_add(a->square, sqX, sqW);
}

static struct tensor transposed(struct single *s, struct tensor t)
{
    const int64_t rows = tensor_rows(t), cols = tensor_cols(t);
    const struct tensor out = single_new(s, cols, rows);
    for (int64_t r = 0; !s->failed && r < rows; r++)
        for (int64_t c = 0; c < cols; c++) numbers(out)[c * rows + r] = numbers(t)[r * cols + c];
    return out;
}

static void add_bias(struct adding *a, struct tensor bias)
{
    const int64_t cols = tensor_cols(a->sum);
    for (int64_t i = 0; i < tensor_count(a->sum); i++) {
        const double b = numbers(bias)[i % cols];
        numbers(a->sum)[i] += b, numbers(a->absolute)[i] += fabs(b);
    }
}

/* matrices: that other programs multiply with one by one, and whose results they add. */
static struct single_value finish(struct single *s, const struct adding *a, int64_t terms, int matrices)
{
    const double sum = rounding_of_sum(s->rounding.sum, terms);
    const int64_t rows = tensor_rows(a->sum), cols = tensor_cols(a->sum);
    const struct single_value v = { .y = a->sum, .fused = single_new(s, rows, cols),
                                    .steps = single_new(s, rows, cols) };
    bound(s, a, sum, s->rounding.parts, false, v.fused);
    bound(s, a, sum, s->rounding.parts * matrices, true, v.steps);
    return v;
}

/* What has been added so far is stored. */
static void add_stored(struct adding *a)
{
    for (int64_t i = 0; i < tensor_count(a->sum); i++) numbers(a->stored)[i] += fabs(numbers(a->sum)[i]);
}

struct single_value product(struct single *s, struct tensor X, struct tensor W)
{
    struct adding a = adding_new(s, tensor_rows(X), tensor_rows(W));
    if (!s->failed) add_product(s, &a, X, W);
    return finish(s, &a, tensor_cols(W), 1);
}

struct single_value product_input(struct single *s, struct tensor dY, struct tensor W, int matrices)
{
    struct adding a = adding_new(s, tensor_rows(dY), tensor_cols(W));
    const struct tensor Wt = transposed(s, W);
    if (!s->failed) add_product(s, &a, dY, Wt);
    return finish(s, &a, tensor_rows(W), matrices);
}

struct single_value product_weight(struct single *s, struct tensor dY, struct tensor X)
{
    struct adding a = adding_new(s, tensor_cols(dY), tensor_cols(X));
    const struct tensor Yt = transposed(s, dY), Xt = transposed(s, X);
    if (!s->failed) add_product(s, &a, Yt, Xt);
    return finish(s, &a, tensor_rows(X), 1);
}

static struct single_value forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]), W = single_param(s, n->weight), b = single_param(s, n->bias);
    if (!single_going(s)) return single_none;
    struct adding a = adding_new(s, tensor_rows(X), tensor_rows(W));
    if (!s->failed) add_product(s, &a, X, W);
    if (!s->failed && n->bias >= 0) add_stored(&a), add_bias(&a, b);
    return finish(s, &a, tensor_cols(W) + 1, 1);
}

static struct single_value input(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), W = single_param(s, n->weight);
    return single_going(s) ? product_input(s, dY, W, n->matrices) : single_none;
}

static struct single_value weight(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    return single_going(s) ? product_weight(s, dY, X) : single_none;
}

static struct single_value bias(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out);
    if (!single_going(s)) return single_none;
    struct adding a = adding_new(s, 1, tensor_cols(dY));
    const struct tensor one = single_new(s, 1, tensor_rows(dY)), Yt = transposed(s, dY);
    for (int64_t i = 0; !s->failed && i < tensor_rows(dY); i++) numbers(one)[i] = 1;
    if (!s->failed) add_product(s, &a, one, Yt);
    return finish(s, &a, tensor_rows(dY), 1);
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
};
