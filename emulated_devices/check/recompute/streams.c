/* streams.c -- parallel streams side by side, and their weighted mean.
 *
 * Of a token, with weights w_i = (1-eps) p_i + eps/P, p = softmax(logits): y = sum of w_i h_i; backward, with
 * g_i = dy . h_i, the gradient of logit i is (1-eps) p_i (g_i - sum_j(p_j g_j)).  A probability is off by a few units
 * of itself, so g_i minus the mean is off by the errors of both, even if they cancel.  By steps p, w, products and g
 * are stored; each that is subnormal is off by `tiny`.
 * walk.c runs the passes of a model with parallel streams.  A stream is a copy of the residual stream: rows of all
 * streams are below each other.
 */
#include "emulated_devices/check/recompute/parts.h"
#include "ref/model/config.h"

/* ---- side by side ------------------------------------------------------------------------------------------------ */

/* Element d of stream i of token n has this place in rows with all streams [N, D P]. */
static int64_t beside_at(int64_t n, int64_t d, int64_t i, int64_t D, int64_t P) { return (n * D + d) * P + i; }

/* Move between streams below each other and beside each other.  back: to below. */
static void streams_move(struct single *single, struct tensor to, struct tensor from, bool back)
{
    const int64_t P = STREAMS(single->context->config), N = single->cursor.N, D = tensor_cols(back ? to : from);
    for (int64_t n = 0; !single->failed && n < N; n++)
        for (int64_t i = 0; i < P; i++)
            for (int64_t d = 0; d < D; d++) {
                const int64_t below = (i * N + n) * D + d, beside = beside_at(n, d, i, D, P);
                numbers(to)[back ? below : beside] = numbers(from)[back ? beside : below];
            }
}

/* A value and both bounds are moved alike; copies round nothing. */
static struct single_value streams_moved(struct single *single, struct single_value from, int64_t rows,
                                         int64_t cols, bool back)
{
    if (!single_going(single)) return single_stop(single);
    struct single_value to = single_value_new(single, rows, cols);
    streams_move(single, to.y, from.y, back), streams_move(single, to.fused, from.fused, back),
        streams_move(single, to.steps, from.steps, back);
    to.stored = from.stored;
    return to;
}

static struct single_value beside_forward(struct single *single, const struct single_node *node)
{
    const struct single_slot *out = single_slot(single, node->out);
    return streams_moved(single, single_value_of(single, node->in[0]), single_rows(single, out), out->cols, false);
}

static struct single_value beside_input(struct single *single, const struct single_node *node)
{
    const struct single_slot *in = single_slot(single, node->in[0]);
    return streams_moved(single, single_gradient_of(single, node->out), single_rows(single, in), in->cols, true);
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

/* Compute a token's weights w_i = (1-eps) p_i + eps/P; p: probabilities. */
static void streams_weights_of(const struct single *single, const double *x, double *p, double *w)
{
    const int64_t P = STREAMS(single->context->config);
    const double eps = single->context->config->streams.smoothing;
    double top = x[0], sum = 0;
    for (int64_t i = 1; i < P; i++) top = fmax(top, x[i]);
    for (int64_t i = 0; i < P; i++) sum += p[i] = exp(x[i] - top);
    for (int64_t i = 0; i < P; i++) p[i] /= sum, w[i] = (1 - eps) * p[i] + eps / (double)P;
}

/* How far a probability is off, relative, if steps have unit roundoff u. */
static double off_p(const struct single *single, const double *x, double u)
{
    double most = 0;
    for (int64_t i = 0; i < STREAMS(single->context->config); i++) most = fmax(most, fabs(x[i]));
    return rounding_of_sum(single->rounding.sum, STREAMS(single->context->config)) + single->rounding.sum
           * (8 + 4 * most) + 3 * u;
}

/* Y [N, D] = sum over streams of w_i h_i. */
static struct single_value mix_forward(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]), logits = single_act(single, node->in[1]);
    if (!single_going(single)) return single_stop(single);
    const int64_t P = STREAMS(single->context->config), D = tensor_cols(X) / P;
    const double sum = rounding_of_sum(single->rounding.sum, P) + 4 * single->rounding.sum, u = single->rounding.store;
    const struct single_value v = single_value_new(single, single->cursor.N, D);
    const struct tensor p = single_new(single, 2, P);
    for (int64_t at = 0; !single->failed && at < single->cursor.N * D; at++) {
        const double *x = numbers(logits) + at / D * P, *h = numbers(X) + at * P, *w = numbers(p) + P;
        double y = 0, absolute = 0, times = (double)P;
        streams_weights_of(single, x, numbers(p), numbers(p) + P);
        /* Y[n, d] = sum over the P streams of w_i h_i. */
        for (int64_t i = 0; i < P; i++) y += w[i] * h[i], absolute += fabs(w[i] * h[i]), times += 2 * fabs(h[i]);
        single_put(v, at, (struct element){ y, (off_p(single, x, 0) + sum) * absolute
                                           + single->rounding.sum_tiny * times },
                   (off_p(single, x, u) + (2 + (double)P) * u) * absolute + single->rounding.tiny * times);
    }
    return v;
}

/* dX [N, D P] = w_i dY for each stream. */
static struct single_value mix_streams(struct single *single, const struct single_node *node)
{
    const struct tensor dY = single_grad(single, node->out), logits = single_act(single, node->in[1]);
    if (!single_going(single)) return single_stop(single);
    const int64_t P = STREAMS(single->context->config), D = tensor_cols(dY);
    const struct single_value v = single_value_new(single, single->cursor.N, D * P);
    const struct tensor p = single_new(single, 2, P);
    for (int64_t at = 0; !single->failed && at < single->cursor.N * D; at++) {
        const double *x = numbers(logits) + at / D * P, *w = numbers(p) + P;
        /* w [P] depends on the token alone; dX[n, i, d] = w_i dY[n, d]. */
        streams_weights_of(single, x, numbers(p), numbers(p) + P);
        for (int64_t i = 0; i < P; i++) {
            const double y = w[i] * numbers(dY)[at], times = 2 * fabs(numbers(dY)[at]);
            single_put(v, at * P + i, (struct element){ y, (off_p(single, x, 0) + 4 * single->rounding.sum) * fabs(y) +
                                                               single->rounding.sum_tiny * times },
                       (off_p(single, x, single->rounding.store) + 2 * single->rounding.store) * fabs(y)
                           + single->rounding.tiny * times);
        }
    }
    return v;
}

/* Compute the gradients of a token's logits.  stored: the unit with which steps are stored, or 0. */
static void mix_row(const struct single *single, const double *dy, const double *h, const double *x, int64_t D,
                    double *scratch, struct unit stored, double *y, double *off)
{
    const double u = stored.u, tiny = stored.tiny + single->rounding.sum_tiny;
    const int64_t P = STREAMS(single->context->config);
    double *p = scratch, *g = scratch + 2 * P, *absolute = scratch + 3 * P, mean = 0, off_mean = 0;
    const double part = rounding_of_sum(single->rounding.sum, D) + 2 * u,
        eps = single->context->config->streams.smoothing,
                 of_p = off_p(single, x, u), tiny_g = tiny_terms(tiny, D) + tiny;
    streams_weights_of(single, x, p, scratch + P);
    for (int64_t i = 0; i < P; i++) g[i] = absolute[i] = 0;
    /* g_i = dy . h_i for each stream, and the mean that a softmax takes away. */
    for (int64_t d = 0; d < D; d++)
        for (int64_t i = 0; i < P; i++)
            g[i] += dy[d] * h[d * P + i], absolute[i] += fabs(dy[d] * h[d * P + i]);
    /* All streams share the mean; off_mean bounds its error. */
    for (int64_t i = 0; i < P; i++) {
        mean += p[i] * g[i];
        off_mean += p[i] * (part * absolute[i] + tiny_g + (of_p + 2 * u + 4 * single->rounding.sum) * fabs(g[i])) +
                    tiny * (1 + fabs(g[i]));
    }
    for (int64_t i = 0; i < P; i++) {
        y[i] = (1 - eps) * p[i] * (g[i] - mean);
        off[i] = (1 - eps) * p[i] * (part * absolute[i] + tiny_g + off_mean +
                                     (u + 2 * single->rounding.sum) * (fabs(g[i]) + fabs(mean))) +
                 (of_p + 3 * u + 4 * single->rounding.sum) * fabs(y[i]) + tiny * (1 + fabs(g[i] - mean));
    }
}

/* dlogits [N, P]: once as a fused program computes, once with stored steps. */
static struct single_value mix_logits(struct single *single, const struct single_node *node)
{
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]),
        logits = single_act(single, node->in[1]);
    if (!single_going(single)) return single_stop(single);
    const int64_t P = STREAMS(single->context->config), D = tensor_cols(dY);
    const struct single_value v = single_value_new(single, single->cursor.N, P);
    const struct tensor scratch = single_new(single, 4, P);
    for (int64_t i = 0; !single->failed && i < single->cursor.N; i++) {
        const double *dy = numbers(dY) + i * D, *h = numbers(X) + i * D * P, *x = numbers(logits) + i * P;
        /* Both calls write the same values; only the bounds differ. */
        mix_row(single, dy, h, x, D, numbers(scratch), (struct unit){ 0 }, numbers(v.y) + i * P,
                numbers(v.fused) + i * P);
        mix_row(single, dy, h, x, D, numbers(scratch), unit_stored(single), numbers(v.y) + i * P,
                numbers(v.steps) + i * P);
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
