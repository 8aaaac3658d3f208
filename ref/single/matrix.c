/* matrix.c -- products with matrices.
 *
 * Y = X W^T + b.  The error of a sum in one format is rounding_of_sum() times |X| |W|^T + |b|; the result is stored.
 *
 * A product in P parts (rounding.parts; by steps also the parts of a matrix: queries, keys, values) stores each part
 * and each sum of parts.  Which terms are in which part is not known, so their sizes are estimated: a sum of some of
 * the terms is a random walk, and seldom larger than |y| + 3 sqrt(sum of squared terms); all P parts together than
 * |y| + 3 sqrt(P sum of squares).
 */
#include "ref/single/parts.h"

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

static struct tensor bound(struct single *s, const struct adding *a, double sum, int parts, bool stored)
{
    const struct rounding *r = &s->rounding;
    const struct tensor b = single_new(s, tensor_rows(a->sum), tensor_cols(a->sum));
    for (int64_t i = 0; !s->failed && i < tensor_count(b); i++) {
        const double y = numbers(a->sum)[i], absolute = numbers(a->absolute)[i],
                     on_the_way = parts_stored(y, absolute, numbers(a->square)[i], parts) +
                                  (stored ? numbers(a->stored)[i] : 0),
                     off = sum * absolute + r->store * on_the_way + (parts > 1 ? 2 * parts * r->tiny : 0);
        numbers(b)[i] = off + rounding_when_stored(r, y, off);
    }
    return b;
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

/* How many parts a matrix has in other programs. */
static int groups_of(const struct single_matrix *m)
{
    int n = 0;
    while (n < 3 && m->groups[n] > 0) n++;
    return n > 0 ? n : 1;
}

/* certain: that what a->stored has is stored, also by a fused program. */
static void finish(struct single *s, const struct adding *a, int64_t terms, int groups, bool certain)
{
    const double sum = rounding_of_sum(s->rounding.sum, terms);
    const struct tensor fused = bound(s, a, sum, s->rounding.parts, certain),
                        stepwise = bound(s, a, sum, s->rounding.parts * groups, true);
    single_end(s, a->sum, fused, stepwise);
}

/* What has been added so far is stored. */
static void add_stored(struct adding *a)
{
    for (int64_t i = 0; i < tensor_count(a->sum); i++) numbers(a->stored)[i] += fabs(numbers(a->sum)[i]);
}

void single_matrix_forward(struct single *s, struct single_name y, struct single_name x, struct single_matrix m)
{
    if (!single_begin(s, y, "the product with its matrix", s->N, m.out)) return;
    const struct tensor X = single_input(s, x, s->N, m.in),
                        W = single_input(s, single_param(s, "start", m.weight), m.out, m.in),
                        b = m.bias < 0 ? tensor_none : single_input(s, single_param(s, "start", m.bias), 1, m.out);
    if (!single_ready(s)) return;
    if (m.groups[0] > 0) s->now.head = s->config->A * (m.groups[2] > 0);
    struct adding a = adding_new(s, s->N, m.out);
    if (!s->failed) add_product(s, &a, X, W);
    if (!s->failed && m.bias >= 0) add_stored(&a), add_bias(&a, b);
    finish(s, &a, m.in + 1, 1, false);
}

static void add_all(struct adding *a, const struct adding *b, bool stored)
{
    for (int64_t i = 0; i < tensor_count(a->sum); i++) {
        numbers(a->sum)[i] += numbers(b->sum)[i];
        numbers(a->absolute)[i] += numbers(b->absolute)[i], numbers(a->square)[i] += numbers(b->square)[i];
        numbers(a->stored)[i] += stored ? fabs(numbers(b->sum)[i]) : 0;
    }
}

void single_matrix_input(struct single *s, struct single_name dx, const struct single_name dy[],
                         const struct single_matrix *m, int count)
{
    int64_t terms = 0;
    int groups = 1;
    if (!single_begin(s, dx, "the backward pass of a matrix for its input", s->N, m[0].in)) return;
    struct tensor dY[2], W[2];
    for (int i = 0; i < count; i++) {
        dY[i] = single_input(s, dy[i], s->N, m[i].out);
        W[i] = single_input(s, single_param(s, "start", m[i].weight), m[i].out, m[i].in);
    }
    if (!single_ready(s)) return;
    struct adding a = adding_new(s, s->N, m[0].in);
    for (int i = 0; i < count && !s->failed; i++) {
        const struct tensor Wt = transposed(s, W[i]);
        struct adding one = adding_new(s, s->N, m[0].in);
        if (!s->failed) add_product(s, &one, dY[i], Wt);
        if (!s->failed) add_all(&a, &one, count > 1);
        terms += m[i].out;
        groups = groups_of(&m[i]) > groups ? groups_of(&m[i]) : groups;
    }
    finish(s, &a, terms, groups, count > 1);
}

/* The rows of an embedding's gradient, added to those of its tokens. */
static void add_rows(struct single *s, struct adding *a, struct tensor dY)
{
    const int64_t D = tensor_cols(dY);
    for (int64_t n = 0; n < tensor_rows(dY); n++)
        for (int64_t c = 0; c < D; c++) {
            const int64_t at = s->batch.ids[n] * D + c;
            numbers(a->stored)[at] += fabs(numbers(dY)[n * D + c]) + fabs(numbers(a->sum)[at]);
            numbers(a->sum)[at] += numbers(dY)[n * D + c];
            numbers(a->absolute)[at] += fabs(numbers(dY)[n * D + c]);
        }
}

static void bias_gradient(struct single *s, struct single_name dy, struct single_matrix m)
{
    if (m.bias < 0) return;
    if (!single_begin(s, single_param(s, "grad", m.bias), "the backward pass of a matrix for its bias", 1, m.out))
        return;
    const struct tensor dY = single_input(s, dy, s->N, m.out);
    if (!single_ready(s)) return;
    struct adding a = adding_new(s, 1, m.out);
    const struct tensor one = single_new(s, 1, s->N), Yt = transposed(s, dY);
    for (int64_t n = 0; !s->failed && n < s->N; n++) numbers(one)[n] = 1;
    if (!s->failed) add_product(s, &a, one, Yt);
    finish(s, &a, s->N, 1, false);
}

void single_matrix_weight(struct single *s, struct single_name dy, struct single_name x, struct single_matrix m,
                          bool also)
{
    bias_gradient(s, dy, m);
    if (!single_begin(s, single_param(s, "grad", m.weight), "the backward pass of a matrix for its weight", m.out,
                      m.in))
        return;
    const struct tensor dY = single_input(s, dy, s->N, m.out), X = single_input(s, x, s->N, m.in),
                        dE = also ? single_input(s, single_act("grad", -1, ""), s->N, m.in) : tensor_none;
    if (!single_ready(s)) return;
    struct adding a = adding_new(s, m.out, m.in);
    const struct tensor Yt = transposed(s, dY), Xt = transposed(s, X);
    if (!s->failed) add_product(s, &a, Yt, Xt);
    if (!s->failed && also) add_rows(s, &a, dE);
    finish(s, &a, (1 + also) * s->N, 1, also);
}
