/* norm.c -- layernorm and rmsnorm.
 *
 * y = (x - m) r w + b, r = 1/sqrt(v + eps); an rmsnorm has m = 0 and no b.  With g = rounding_of_sum(D):
 *   the mean is off by g mean|x|, the variance by g (mean x^2), also if it is mean x^2 - m^2;
 *   so r is off by the part g r^2 (mean x^2) / 2 of itself, and xhat = (x - m) r by the sum of both.
 * By steps, xhat is stored before it is multiplied by w; backward, mean and r are stored, too, and the gradients of w
 * and b after each row.
 *
 * dx = r (h - mean(h) - xhat mean(h xhat)), h = dy w.
 */
#include "ref/single/parts.h"

/* A row's statistics, and how far they may be off: mean absolutely, r relative to itself. */
struct row { double mean, r, off_mean, off_r; };

static struct row row_of(const struct single *s, const double *x, bool has_mean)
{
    const int64_t D = s->config->D;
    const double g = rounding_of_sum(s->rounding.sum, D + 2);
    double sum = 0, absolute = 0, squares = 0, centred = 0;
    for (int64_t i = 0; i < D; i++) sum += x[i], absolute += fabs(x[i]), squares += x[i] * x[i];
    struct row w = { .mean = has_mean ? sum / (double)D : 0 };
    for (int64_t i = 0; i < D; i++) centred += (x[i] - w.mean) * (x[i] - w.mean);
    w.r = 1 / sqrt(centred / (double)D + s->config->eps);
    w.off_mean = has_mean ? g * absolute / (double)D : 0;
    w.off_r = g * w.r * w.r * squares / (double)D / 2 + 4 * s->rounding.sum;
    return w;
}

/* How far xhat of x is off. */
static double off_xhat(const struct single *s, const struct row *w, double x)
{
    const double xhat = (x - w->mean) * w->r;
    return w->r * w->off_mean + fabs(xhat) * (w->off_r + 2 * s->rounding.sum);
}

static struct single_value forward(struct single *s, const struct single_node *n)
{
    const int64_t D = s->config->D;
    const struct tensor X = single_act(s, n->in[0]), w = single_param(s, n->weight), b = single_param(s, n->bias);
    if (!single_going(s)) return single_none;
    const struct single_value v = single_value_new(s, tensor_rows(X), D);
    struct row row = { 0 };
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i++) {
        const int64_t c = i % D;
        if (c == 0) row = row_of(s, numbers(X) + i, s->config->norm == NORM_LAYER);
        const double xhat = (numbers(X)[i] - row.mean) * row.r, scaled = xhat * numbers(w)[c],
                     off = off_xhat(s, &row, numbers(X)[i]) * fabs(numbers(w)[c]) +
                           2 * s->rounding.sum * fabs(scaled);
        single_put(v, i, (struct element){ scaled + (n->bias < 0 ? 0 : numbers(b)[c]), off },
                   s->rounding.store * 2 * fabs(scaled));
    }
    return v;
}

/* One row of dx, and how far it is off if the steps' results have unit roundoff u. */
static void row_input(const struct single *s, const double *dy, const double *x, const double *w, double u, double *dx,
                      double *off)
{
    const int64_t D = s->config->D;
    const double g = rounding_of_sum(s->rounding.sum, D), n = (double)D;
    const bool has_mean = s->config->norm == NORM_LAYER;
    struct row row = row_of(s, x, has_mean);
    row.off_mean += u * fabs(row.mean), row.off_r += u;
    double h = 0, abs_h = 0, hx = 0, abs_hx = 0, h_off = 0;
    for (int64_t i = 0; i < D; i++) {
        const double hi = dy[i] * w[i], xhat = (x[i] - row.mean) * row.r;
        h += hi / n, abs_h += fabs(hi) / n, hx += hi * xhat / n, abs_hx += fabs(hi * xhat) / n;
        h_off += fabs(hi) * (off_xhat(s, &row, x[i]) + u * fabs(xhat)) / n;
    }
    if (!has_mean) h = abs_h = 0;
    const double off_h = (g + 2 * s->rounding.sum + u) * abs_h,
                 off_hx = (g + 3 * s->rounding.sum + 2 * u) * abs_hx + h_off;
    for (int64_t i = 0; i < D; i++) {
        const double hi = dy[i] * w[i], xhat = (x[i] - row.mean) * row.r, inner = hi - h - xhat * hx;
        dx[i] = row.r * inner;
        off[i] = row.r * ((u + 4 * s->rounding.sum) * (fabs(hi) + fabs(h) + fabs(xhat * hx)) + off_h +
                          fabs(xhat) * off_hx + (off_xhat(s, &row, x[i]) + u * fabs(xhat)) * fabs(hx)) +
                 fabs(dx[i]) * (row.off_r + u);
    }
}

static struct single_value input(struct single *s, const struct single_node *n)
{
    const int64_t D = s->config->D;
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]), w = single_param(s, n->weight);
    if (!single_going(s)) return single_none;
    const struct single_value v = single_value_new(s, tensor_rows(X), D);
    for (int64_t i = 0; !s->failed && i < tensor_count(X); i += D) {
        const double *y = numbers(dY) + i, *x = numbers(X) + i;
        row_input(s, y, x, numbers(w), 0, numbers(v.y) + i, numbers(v.fused) + i);
        row_input(s, y, x, numbers(w), s->rounding.store, numbers(v.y) + i, numbers(v.steps) + i);
    }
    return v;
}

/* The sum over rows of dY, times xhat if `x` is not NULL. */
static struct single_value sum_of_rows(struct single *s, struct tensor dY, const double *x)
{
    const struct rounding *r = &s->rounding;
    const int64_t D = s->config->D;
    const struct single_value v = single_value_new(s, 1, D);
    const struct tensor absolute = single_new(s, 1, D), square = single_new(s, 1, D);
    struct row exact = { 0 };
    for (int64_t i = 0; !s->failed && i < tensor_count(dY); i++) {
        const int64_t c = i % D;
        double xhat = 1, off = 0;
        if (x && c == 0) exact = row_of(s, x + i, s->config->norm == NORM_LAYER);
        if (x) {
            struct row row = exact;
            xhat = (x[i] - row.mean) * row.r, off = off_xhat(s, &row, x[i]);
            row.off_mean += r->store * fabs(row.mean), row.off_r += r->store;
            numbers(v.steps)[c] += fabs(numbers(dY)[i]) * (off_xhat(s, &row, x[i]) - off);
        }
        const double term = numbers(dY)[i] * xhat;
        numbers(v.steps)[c] += r->store * fabs(numbers(v.y)[c] + term);
        numbers(v.y)[c] += term, numbers(absolute)[c] += fabs(term), numbers(square)[c] += term * term;
        numbers(v.fused)[c] += fabs(numbers(dY)[i]) * off;
    }
    for (int64_t c = 0; !s->failed && c < D; c++) {
        double *const f = &numbers(v.fused)[c];
        *f += rounding_of_sum(r->sum, tensor_rows(dY) + 2) * numbers(absolute)[c];
        *f += r->parts > 1 ? (r->parts - 1) * 2 * r->store * numbers(absolute)[c] : 0;
        numbers(v.steps)[c] += *f + 2 * rounding_of_terms(r->store, numbers(absolute)[c], sqrt(numbers(square)[c]));
    }
    return v;
}

static struct single_value weight(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    return single_going(s) ? sum_of_rows(s, dY, numbers(X)) : single_none;
}

static struct single_value bias(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out);
    return single_going(s) ? sum_of_rows(s, dY, NULL) : single_none;
}

const struct single_operation single_norm = {
    .words = "the norm",
    .forward = forward,
    .input_words = "the backward pass of the norm for its input",
    .input = { input },
    .weight_words = "the backward pass of the norm for its weight",
    .weight = weight,
    .bias_words = "the backward pass of the norm for its bias",
    .bias = bias,
};
