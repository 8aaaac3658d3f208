/* norm.c -- layernorm and rmsnorm.
 *
 * y = (x - m) r w + b, r = 1/sqrt(v + eps); an rmsnorm has m = 0 and no b.  With g = rounding_of_sum(D):
 *   the mean is off by g mean|x|, the variance by g (mean x^2), also if it is mean x^2 - m^2;
 *   so r is off by the part g r^2 (mean x^2) / 2 of itself, and xhat = (x - m) r by the sum of both.
 * Backward, a gradient that is added to one that passes by is stored first.  By steps, xhat is stored before it is
 * multiplied by w; backward, mean and r are stored, too, and the gradients of w and b after each row.
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

void single_norm_forward(struct single *s, struct single_name y, struct single_name x, struct single_norm m)
{
    const int64_t D = s->config->D;
    if (!single_begin(s, y, "the norm", s->N, D)) return;
    const struct tensor X = single_input(s, x, s->N, D), w = single_input(s, single_param(s, "start", m.weight), 1, D),
                        b = m.bias < 0 ? tensor_none : single_input(s, single_param(s, "start", m.bias), 1, D);
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, s->N, D), fused = single_new(s, s->N, D), steps = single_new(s, s->N, D);
    const struct rounding *r = &s->rounding;
    struct row row = { 0 };
    for (int64_t i = 0; !s->failed && i < s->N * D; i++) {
        const int64_t c = i % D;
        if (c == 0) row = row_of(s, numbers(X) + i, s->config->norm == NORM_LAYER);
        const double xhat = (numbers(X)[i] - row.mean) * row.r, scaled = xhat * numbers(w)[c],
                     off = off_xhat(s, &row, numbers(X)[i]) * fabs(numbers(w)[c]) + 2 * r->sum * fabs(scaled),
                     more = r->store * 2 * fabs(scaled);
        numbers(Y)[i] = scaled + (m.bias < 0 ? 0 : numbers(b)[c]);
        numbers(fused)[i] = off + rounding_when_stored(r, numbers(Y)[i], off);
        numbers(steps)[i] = off + more + rounding_when_stored(r, numbers(Y)[i], off + more);
    }
    single_end(s, Y, fused, steps);
}

/* One row of dx, without what passes by, and how far it is off if the steps' results have unit roundoff u. */
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

void single_norm_input(struct single *s, struct single_name dx, struct single_name dy, struct single_name x,
                       struct single_name beside, struct single_norm m)
{
    const int64_t D = s->config->D;
    const bool both = beside.text[0] != 0;
    if (!single_begin(s, dx, "the backward pass of the norm for its input", s->N, D)) return;
    const struct tensor dY = single_input(s, dy, s->N, D), X = single_input(s, x, s->N, D),
                        w = single_input(s, single_param(s, "start", m.weight), 1, D),
                        by = both ? single_input(s, beside, s->N, D) : tensor_none;
    if (!single_ready(s)) return;
    const struct tensor Y = single_new(s, s->N, D), fused = single_new(s, s->N, D), steps = single_new(s, s->N, D);
    const struct rounding *r = &s->rounding;
    for (int64_t n = 0; !s->failed && n < s->N; n++) {
        const double *y = numbers(dY) + n * D, *xs = numbers(X) + n * D;
        row_input(s, y, xs, numbers(w), 0, numbers(Y) + n * D, numbers(fused) + n * D);
        row_input(s, y, xs, numbers(w), r->store, numbers(Y) + n * D, numbers(steps) + n * D);
    }
    for (int64_t i = 0; !s->failed && i < s->N * D; i++) {
        const double branch = numbers(Y)[i], beside_it = both ? numbers(by)[i] : 0;
        double *const f = &numbers(fused)[i], *const t = &numbers(steps)[i];
        numbers(Y)[i] += beside_it;
        const double add = both ? r->sum * (fabs(branch) + fabs(beside_it)) : 0, branch_stored = both ? r->store : 0;
        *f += add + branch_stored * (fabs(branch) + *f);
        *t += add + branch_stored * (fabs(branch) + *t);
        *f += rounding_when_stored(r, numbers(Y)[i], *f);
        *t += rounding_when_stored(r, numbers(Y)[i], *t);
    }
    single_end(s, Y, fused, steps);
}

static void norm_parameter(struct single *s, struct single_name dy, struct single_name x, int param, bool weight)
{
    const int64_t D = s->config->D;
    if (param < 0) return;
    if (!single_begin(s, single_param(s, "grad", param), weight ? "the backward pass of the norm for its weight"
                                                                : "the backward pass of the norm for its bias",
                      1, D))
        return;
    const struct tensor dY = single_input(s, dy, s->N, D), X = weight ? single_input(s, x, s->N, D) : tensor_none;
    if (!single_ready(s)) return;
    const struct rounding *r = &s->rounding;
    const struct tensor Y = single_new(s, 1, D), fused = single_new(s, 1, D), steps = single_new(s, 1, D),
                        absolute = single_new(s, 1, D), square = single_new(s, 1, D);
    struct row exact = { 0 };
    for (int64_t i = 0; !s->failed && i < s->N * D; i++) {
        const int64_t c = i % D;
        double xhat = 1, off = 0;
        if (weight && c == 0) exact = row_of(s, numbers(X) + i, s->config->norm == NORM_LAYER);
        if (weight) {
            struct row row = exact;
            xhat = (numbers(X)[i] - row.mean) * row.r, off = off_xhat(s, &row, numbers(X)[i]);
            row.off_mean += r->store * fabs(row.mean), row.off_r += r->store;
            numbers(steps)[c] += fabs(numbers(dY)[i]) * (off_xhat(s, &row, numbers(X)[i]) - off);
        }
        const double term = numbers(dY)[i] * xhat;
        numbers(steps)[c] += r->store * fabs(numbers(Y)[c] + term);
        numbers(Y)[c] += term, numbers(absolute)[c] += fabs(term), numbers(square)[c] += term * term;
        numbers(fused)[c] += fabs(numbers(dY)[i]) * off;
    }
    for (int64_t c = 0; !s->failed && c < D; c++) {
        double *const f = &numbers(fused)[c], *const t = &numbers(steps)[c];
        *f += rounding_of_sum(r->sum, s->N + 2) * numbers(absolute)[c];
        *f += r->parts > 1 ? (r->parts - 1) * 2 * r->store * numbers(absolute)[c] : 0;
        *t += *f + 2 * rounding_of_terms(r->store, numbers(absolute)[c], sqrt(numbers(square)[c]));
        *f += rounding_when_stored(r, numbers(Y)[c], *f);
        *t += rounding_when_stored(r, numbers(Y)[c], *t);
    }
    single_end(s, Y, fused, steps);
}

void single_norm_weight(struct single *s, struct single_name dy, struct single_name x, struct single_norm m)
{
    norm_parameter(s, dy, x, m.weight, true);
    norm_parameter(s, dy, x, m.bias, false);
}
