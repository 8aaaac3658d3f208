/* attention.c -- causal attention, in some layers to a window of the last keys, forward and backward.
 *
 * Of one query, with keys j: scores x_j, probabilities p_j, y = sum of p_j v_j.  If score j is off by e_j, p_j is off
 * by the part e_j - (sum of p e) of itself, so y is off by at most the sum of p_j e_j |v_j - y|: first order, in which
 * errors common to all scores cancel.  Backward, with a_j = dy . v_j and d = sum of p_j a_j, the gradient of x_j is
 * p_j (a_j - d), and d is off by the sum of p_j e_j |a_j - d|, for all j alike.
 *
 * Always allowed: the probabilities, and the gradients of scores, are stored before they are multiplied; d is computed
 * from the y that is stored, even if that is wrong; as in T. Dao et al., "FlashAttention", arXiv:2205.14135.  By steps:
 * scores and a_j are stored twice, and so are the gradients of each query head before those of heads that share a key
 * head are added.
 */
#include "ref/single/parts.h"

/* What an output element sums: value, absolute values, their squares, and errors of the terms. */
struct gathered { struct tensor y, absolute, square, off; };

static struct gathered gathered_new(struct single *s, int64_t rows, int64_t cols)
{
    return (struct gathered){ single_new(s, rows, cols), single_new(s, rows, cols), single_new(s, rows, cols),
                              single_new(s, rows, cols) };
}

static void gather(struct gathered *g, int64_t at, double a, double b, double off)
{
    const double x = a * b;
    numbers(g->y)[at] += x, numbers(g->absolute)[at] += fabs(x), numbers(g->square)[at] += x * x;
    numbers(g->off)[at] += off;
}

/* What was gathered from n terms, once by a fused program, once with the terms and steps stored. */
static void bound(struct single *s, const struct gathered *g, int64_t terms, int times, struct tensor b)
{
    const struct rounding *r = &s->rounding;
    const double sum = rounding_of_sum(r->sum, terms);
    for (int64_t i = 0; !s->failed && i < tensor_count(b); i++) {
        const double all = numbers(g->absolute)[i];
        numbers(b)[i] = numbers(g->off)[i] + 2 * sum * all +
                        times * rounding_of_terms(r->store, all, sqrt(numbers(g->square)[i]));
    }
}

static struct single_value finish(struct single *s, const struct gathered *once, const struct gathered *each,
                                  int64_t terms)
{
    const int64_t rows = tensor_rows(once->y), cols = tensor_cols(once->y);
    const struct single_value v = { .y = once->y, .fused = single_new(s, rows, cols),
                                    .steps = single_new(s, rows, cols) };
    bound(s, once, terms, 1, v.fused), bound(s, each, terms, 2, v.steps);
    return v;
}

/* One query of one head: all pointers are to the keys that it sees, at most [S]. */
struct query {
    int64_t keys;                       /* up to itself */
    double *p, *off;                    /* probabilities; how far its score is off */
    double mean_off;                    /* sum of p off */
};

static double dot(const double *a, const double *b, int64_t n, double *absolute)
{
    double sum = 0, all = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i], all += fabs(a[i] * b[i]);
    *absolute = all;
    return sum;
}

static void probabilities(const struct single *s, struct query *q, const double *mine, const double *keys, int64_t ld,
                          bool by_steps)
{
    const struct model_config *c = s->config;
    const double scale = 1 / sqrt((double)c->A), g = rounding_of_sum(s->rounding.sum, c->A);
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < q->keys; j++) {
        double absolute;
        q->p[j] = scale * dot(mine, keys + j * ld, c->A, &absolute);
        q->off[j] = g * scale * absolute + (by_steps ? 2 * s->rounding.store : 0) * fabs(q->p[j]);
        top = fmax(top, q->p[j]);
    }
    for (int64_t j = 0; j < q->keys; j++) {
        q->off[j] += s->rounding.sum * (4 + 3 * fabs(q->p[j]) + 2 * fabs(top));
        q->p[j] = exp(q->p[j] - top), sum += q->p[j];
    }
    q->mean_off = 0;
    for (int64_t j = 0; j < q->keys; j++) q->p[j] /= sum, q->mean_off += q->p[j] * q->off[j];
}

/* The row of the first key that the query of row n sees. */
static int64_t first_key(const struct single *s, int layer, int64_t n)
{
    const int64_t w = model_window(s->config, layer), at = n % s->batch.S;
    return n - (w > 0 && w <= at ? w - 1 : at);
}

/* The rows of heads in [N, (H+2K)A]. */
struct heads { int64_t width, query, key, value; };

static struct heads heads_of(const struct model_config *c, int64_t h)
{
    const int64_t k = h / (c->H / c->K);
    return (struct heads){ qkv_width(c), h * c->A, (c->H + k) * c->A, (c->H + c->K + k) * c->A };
}

static void gather_forward(struct single *s, int layer, struct tensor qkv, struct gathered *g, double *scratch,
                           bool by_steps)
{
    const struct model_config *c = s->config;
    const int64_t S = s->batch.S;
    for (int64_t n = 0; n < tensor_rows(qkv); n++)
        for (int64_t h = 0; h < c->H; h++) {
            const struct heads at = heads_of(c, h);
            const int64_t first_row = first_key(s, layer, n);
            const double *first = numbers(qkv) + first_row * at.width;
            struct query q = { .keys = n + 1 - first_row, .p = scratch, .off = scratch + S };
            probabilities(s, &q, numbers(qkv) + n * at.width + at.query, first + at.key, at.width, by_steps);
            for (int64_t a = 0; a < c->A; a++) {
                const int64_t to = (n * c->H + h) * c->A + a;
                for (int64_t j = 0; j < q.keys; j++)
                    gather(g, to, q.p[j], first[j * at.width + at.value + a], 0);
                for (int64_t j = 0; j < q.keys; j++)
                    numbers(g->off)[to] +=
                        q.p[j] * q.off[j] * fabs(first[j * at.width + at.value + a] - numbers(g->y)[to]);
            }
        }
}

static struct single_value forward(struct single *s, const struct single_node *n)
{
    const int64_t width = single_slot(s, n->out)->cols;
    const struct tensor X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    struct gathered once = gathered_new(s, tensor_rows(X), width), each = gathered_new(s, tensor_rows(X), width);
    const struct tensor scratch = single_new(s, 2, s->batch.S);
    if (!s->failed) gather_forward(s, n->layer, X, &once, numbers(scratch), false);
    if (!s->failed) gather_forward(s, n->layer, X, &each, numbers(scratch), true);
    return finish(s, &once, &each, s->batch.S);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* The gradients of a query's scores: p (a - d), times the scale. */
struct slopes { double *x, *off; double common; };      /* off: by itself; common: of d, times p and the scale */

static struct slopes slopes_of(const struct single *s, const struct query *q, const double *dy, const double *result,
                               const double *values, int64_t ld, double *scratch, bool by_steps)
{
    const struct model_config *c = s->config;
    const struct rounding *r = &s->rounding;
    const double g = rounding_of_sum(r->sum, c->A), scale = 1 / sqrt((double)c->A);
    struct slopes z = { .x = scratch, .off = scratch + s->batch.S };
    double d = 0, d_of_result = 0, absolute_d = 0;
    for (int64_t j = 0; j < q->keys; j++) {
        double absolute;
        z.x[j] = dot(dy, values + j * ld, c->A, &absolute);
        z.off[j] = g * absolute + (by_steps ? 2 * r->store : 0) * fabs(z.x[j]);
        d += q->p[j] * z.x[j];
    }
    for (int64_t a = 0; a < c->A; a++) {
        double y = 0;
        for (int64_t j = 0; j < q->keys; j++) y += q->p[j] * values[j * ld + a];
        absolute_d += fabs(y * dy[a]), d_of_result += dy[a] * (result[a] - y);
    }
    z.common = (rounding_of_sum(r->sum, c->A + q->keys) + 3 * r->sum) * absolute_d + fabs(d_of_result);
    for (int64_t j = 0; j < q->keys; j++) {
        const double apart = z.x[j] - d;
        z.common += q->p[j] * (q->off[j] * fabs(apart) + (by_steps ? z.off[j] : g * fabs(z.x[j])));
        z.off[j] = scale * q->p[j] * ((q->off[j] + q->mean_off + 4 * r->sum) * fabs(apart) + z.off[j] +
                                      r->sum * (fabs(z.x[j]) + fabs(d)));
        z.off[j] += (by_steps ? 2 * r->store : 0) * scale * q->p[j] * fabs(apart) + r->tiny;
        z.x[j] = scale * q->p[j] * apart;
    }
    z.common *= scale;
    return z;
}

/* Add what a query contributes to the gradients of itself, its keys and values. */
static void spread(struct gathered *g, const struct query *q, const struct slopes *z, const double *mine,
                   const double *first, const double *dy, struct heads at, int64_t row, int64_t first_row, int64_t A)
{
    for (int64_t a = 0; a < A; a++) {
        double common = 0;
        for (int64_t j = 0; j < q->keys; j++) {
            const double k = first[j * at.width + at.key + a];
            const int64_t to = (first_row + j) * at.width;
            gather(g, row * at.width + at.query + a, z->x[j], k, z->off[j] * fabs(k));
            gather(g, to + at.key + a, z->x[j], mine[a], (z->off[j] + q->p[j] * z->common) * fabs(mine[a]));
            gather(g, to + at.value + a, q->p[j], dy[a], q->p[j] * (q->off[j] + q->mean_off) * fabs(dy[a]));
            common += q->p[j] * k;
        }
        numbers(g->off)[row * at.width + at.query + a] += z->common * fabs(common);
    }
}

/* What a head added to the gradients of keys and values is stored, and so is the sum. */
static void store_head(struct single *s, struct gathered *g, double *before, struct heads at)
{
    for (int64_t n = 0; n < tensor_rows(g->y); n++)
        for (int64_t a = 0; a < 2 * s->config->A; a++) {
            const int64_t A = s->config->A, to = n * at.width + (a < A ? at.key + a : at.value + a - A);
            const double now = numbers(g->y)[to];
            numbers(g->off)[to] += s->rounding.store * (fabs(now - before[to]) + fabs(now));
            before[to] = now;
        }
}

static void gather_backward(struct single *s, int layer, const double *qkv, const double *y, const double *dy,
                            struct gathered *g, double *scratch, double *before, bool by_steps)
{
    const struct model_config *c = s->config;
    const int64_t S = s->batch.S;
    for (int64_t h = 0; h < c->H; h++) {
        const struct heads at = heads_of(c, h);
        for (int64_t n = 0; n < tensor_rows(g->y); n++) {
            const int64_t first_row = first_key(s, layer, n);
            const double *first = qkv + first_row * at.width, *mine = qkv + n * at.width + at.query,
                         *my_dy = dy + (n * c->H + h) * c->A, *my_y = y + (n * c->H + h) * c->A;
            struct query q = { .keys = n + 1 - first_row, .p = scratch, .off = scratch + S };
            probabilities(s, &q, mine, first + at.key, at.width, by_steps);
            const struct slopes z =
                slopes_of(s, &q, my_dy, my_y, first + at.value, at.width, scratch + 2 * S, by_steps);
            spread(g, &q, &z, mine, first, my_dy, at, n, first_row, c->A);
        }
        if (by_steps && c->K < c->H) store_head(s, g, before, at);
    }
}

static struct single_value input(struct single *s, const struct single_node *n)
{
    const struct model_config *c = s->config;
    const struct tensor dY = single_grad(s, n->out), O = single_act(s, n->out), X = single_act(s, n->in[0]);
    if (!single_going(s)) return single_none;
    const int64_t rows = tensor_rows(X), width = tensor_cols(X);
    struct gathered once = gathered_new(s, rows, width), each = gathered_new(s, rows, width);
    const struct tensor scratch = single_new(s, 4, s->batch.S), before = single_new(s, rows, width);
    for (int by_steps = 0; by_steps < 2 && !s->failed; by_steps++)
        gather_backward(s, n->layer, numbers(X), numbers(O), numbers(dY), by_steps ? &each : &once,
                        numbers(scratch), numbers(before), by_steps);
    return finish(s, &once, &each, s->batch.S * (c->H / c->K));
}

const struct single_operation single_attention = {
    .words = "attention",
    .forward = forward,
    .input_words = "the backward pass of attention",
    .input = { input },
};
