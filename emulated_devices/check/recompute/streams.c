/* streams.c -- parallel streams side by side, and their weighted mean.
 *
 * Of a token, with weights w_i = (1-eps) p_i + eps/P, p = softmax(logits): y = sum of w_i h_i; backward, with
 * g_i = dy . h_i, the gradient of logit i is (1-eps) p_i (g_i - sum_j(p_j g_j)).  A probability is off by a few units
 * of itself, so g_i minus the mean is off by the errors of both, even if they cancel.  By steps p, w, products and g
 * are stored; each that is subnormal is off by `tiny`.
 */
#include "emulated_devices/check/recompute/parts.h"

/* ---- side by side ------------------------------------------------------------------------------------------------ */

/* Element d of stream i of token n, in rows of all streams [N, D P]; and where streams are below each other. */
static int64_t beside_at(int64_t n, int64_t d, int64_t i, int64_t D, int64_t P) { return (n * D + d) * P + i; }

static void move(struct single *s, struct tensor to, struct tensor from, bool back)
{
    const int64_t P = STREAMS(s->context->config), N = s->cursor.N, D = tensor_cols(back ? to : from);
    for (int64_t n = 0; !s->failed && n < N; n++)
        for (int64_t i = 0; i < P; i++)
            for (int64_t d = 0; d < D; d++) {
                const int64_t below = (i * N + n) * D + d, beside = beside_at(n, d, i, D, P);
                numbers(to)[back ? below : beside] = numbers(from)[back ? beside : below];
            }
}

static struct single_value moved(struct single *s, struct single_value from, int64_t rows, int64_t cols, bool back)
{
    if (!single_going(s)) return single_stop(s);
    struct single_value to = single_value_new(s, rows, cols);
    move(s, to.y, from.y, back), move(s, to.fused, from.fused, back), move(s, to.steps, from.steps, back);
    to.stored = from.stored;
    return to;
}

static struct single_value beside_forward(struct single *s, const struct single_node *n)
{
    const struct single_slot *out = single_slot(s, n->out);
    return moved(s, single_value_of(s, n->in[0]), single_rows(s, out), out->cols, false);
}

static struct single_value beside_input(struct single *s, const struct single_node *n)
{
    const struct single_slot *in = single_slot(s, n->in[0]);
    return moved(s, single_gradient_of(s, n->out), single_rows(s, in), in->cols, true);
}

const struct single_operation single_beside = {
    .words = "the streams side by side",
    .forward = beside_forward,
    .input_words = "the streams below each other",
    .input = { beside_input },
    .passes_on = true,
    .by_rows = true,
};

/* ---- their mean -------------------------------------------------------------------------------------------------- */

/* A token's weights; p: probabilities. */
static void weights_of(const struct single *s, const double *x, double *p, double *w)
{
    const int64_t P = STREAMS(s->context->config);
    const double eps = s->context->config->streams.smoothing;
    double top = x[0], sum = 0;
    for (int64_t i = 1; i < P; i++) top = fmax(top, x[i]);
    for (int64_t i = 0; i < P; i++) sum += p[i] = exp(x[i] - top);
    for (int64_t i = 0; i < P; i++) p[i] /= sum, w[i] = (1 - eps) * p[i] + eps / (double)P;
}

/* How far a probability is off, relative, if steps have unit roundoff u. */
static double off_p(const struct single *s, const double *x, double u)
{
    double most = 0;
    for (int64_t i = 0; i < STREAMS(s->context->config); i++) most = fmax(most, fabs(x[i]));
    return rounding_of_sum(s->rounding.sum, STREAMS(s->context->config)) + s->rounding.sum * (8 + 4 * most) + 3 * u;
}

static struct single_value mix_forward(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]), logits = single_act(s, n->in[1]);
    if (!single_going(s)) return single_stop(s);
    const int64_t P = STREAMS(s->context->config), D = tensor_cols(X) / P;
    const double sum = rounding_of_sum(s->rounding.sum, P) + 4 * s->rounding.sum, u = s->rounding.store;
    const struct single_value v = single_value_new(s, s->cursor.N, D);
    const struct tensor p = single_new(s, 2, P);
    for (int64_t at = 0; !s->failed && at < s->cursor.N * D; at++) {
        const double *x = numbers(logits) + at / D * P, *h = numbers(X) + at * P, *w = numbers(p) + P;
        double y = 0, absolute = 0, times = (double)P;
        weights_of(s, x, numbers(p), numbers(p) + P);
        for (int64_t i = 0; i < P; i++) y += w[i] * h[i], absolute += fabs(w[i] * h[i]), times += 2 * fabs(h[i]);
        single_put(v, at, (struct element){ y, (off_p(s, x, 0) + sum) * absolute + s->rounding.sum_tiny * times },
                   (off_p(s, x, u) + (2 + (double)P) * u) * absolute + s->rounding.tiny * times);
    }
    return v;
}

static struct single_value mix_streams(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), logits = single_act(s, n->in[1]);
    if (!single_going(s)) return single_stop(s);
    const int64_t P = STREAMS(s->context->config), D = tensor_cols(dY);
    const struct single_value v = single_value_new(s, s->cursor.N, D * P);
    const struct tensor p = single_new(s, 2, P);
    for (int64_t at = 0; !s->failed && at < s->cursor.N * D; at++) {
        const double *x = numbers(logits) + at / D * P, *w = numbers(p) + P;
        weights_of(s, x, numbers(p), numbers(p) + P);
        for (int64_t i = 0; i < P; i++) {
            const double y = w[i] * numbers(dY)[at], times = 2 * fabs(numbers(dY)[at]);
            single_put(v, at * P + i, (struct element){ y, (off_p(s, x, 0) + 4 * s->rounding.sum) * fabs(y) +
                                                               s->rounding.sum_tiny * times },
                       (off_p(s, x, s->rounding.store) + 2 * s->rounding.store) * fabs(y) + s->rounding.tiny * times);
        }
    }
    return v;
}

/* The gradients of a token's logits; stored: what steps are stored with, or 0. */
static void mix_row(const struct single *s, const double *dy, const double *h, const double *x, int64_t D,
                    double *scratch, struct unit stored, double *y, double *off)
{
    const double u = stored.u, tiny = stored.tiny + s->rounding.sum_tiny;
    const int64_t P = STREAMS(s->context->config);
    double *p = scratch, *g = scratch + 2 * P, *absolute = scratch + 3 * P, mean = 0, off_mean = 0;
    const double part = rounding_of_sum(s->rounding.sum, D) + 2 * u, eps = s->context->config->streams.smoothing,
                 of_p = off_p(s, x, u), tiny_g = tiny_terms(tiny, D) + tiny;
    weights_of(s, x, p, scratch + P);
    for (int64_t i = 0; i < P; i++) g[i] = absolute[i] = 0;
    for (int64_t d = 0; d < D; d++)
        for (int64_t i = 0; i < P; i++)
            g[i] += dy[d] * h[d * P + i], absolute[i] += fabs(dy[d] * h[d * P + i]);
    for (int64_t i = 0; i < P; i++) {
        mean += p[i] * g[i];
        off_mean += p[i] * (part * absolute[i] + tiny_g + (of_p + 2 * u + 4 * s->rounding.sum) * fabs(g[i])) +
                    tiny * (1 + fabs(g[i]));
    }
    for (int64_t i = 0; i < P; i++) {
        y[i] = (1 - eps) * p[i] * (g[i] - mean);
        off[i] = (1 - eps) * p[i] * (part * absolute[i] + tiny_g + off_mean +
                                     (u + 2 * s->rounding.sum) * (fabs(g[i]) + fabs(mean))) +
                 (of_p + 3 * u + 4 * s->rounding.sum) * fabs(y[i]) + tiny * (1 + fabs(g[i] - mean));
    }
}

static struct single_value mix_logits(struct single *s, const struct single_node *n)
{
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]), logits = single_act(s, n->in[1]);
    if (!single_going(s)) return single_stop(s);
    const int64_t P = STREAMS(s->context->config), D = tensor_cols(dY);
    const struct single_value v = single_value_new(s, s->cursor.N, P);
    const struct tensor scratch = single_new(s, 4, P);
    for (int64_t i = 0; !s->failed && i < s->cursor.N; i++) {
        const double *dy = numbers(dY) + i * D, *h = numbers(X) + i * D * P, *x = numbers(logits) + i * P;
        mix_row(s, dy, h, x, D, numbers(scratch), (struct unit){ 0, 0 }, numbers(v.y) + i * P,
                numbers(v.fused) + i * P);
        mix_row(s, dy, h, x, D, numbers(scratch), unit_stored(s), numbers(v.y) + i * P, numbers(v.steps) + i * P);
    }
    return v;
}

const struct single_operation single_mix = {
    .words = "the mean of the streams",
    .forward = mix_forward,
    .input_words = "the backward pass of the mean of the streams",
    .input = { mix_streams, mix_logits },
    .by_rows = true,
};
