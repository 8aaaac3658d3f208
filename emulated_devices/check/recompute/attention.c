/* attention.c -- causal attention, in some layers to a window of the last keys, forward and backward.
 *
 * Of one query, with keys j: scores x_j, probabilities p_j, y = sum of p_j v_j.  If score j is off by e_j, p_j is off
 * by the part e_j - (sum of p e) of itself, so y is off by at most the sum of p_j e_j |v_j - y|: first order, in which
 * errors common to all scores cancel.  Backward, with a_j = dy . v_j and d = sum of p_j a_j, the gradient of x_j is
 * p_j (a_j - d), and d is off by the sum of p_j e_j |a_j - d|, for all j alike.
 *
 * A capped score is c tanh(x / c): its own error is that of x times the slope, and the gradient of x is that of the
 * capped score times the slope 1 - tanh^2, which is off by `bend` times how far the capped score is.
 *
 * A dropped probability counts 0 times, a kept one 1/(1-rate) times, in y and in a_j.  The keys of a stream are those
 * of its prefix, then the tokens.
 *
 * Always allowed: the probabilities, and the gradients of scores, are stored before they are multiplied; d is computed
 * from the y that is stored, even if that is wrong; as in T. Dao et al., "FlashAttention", arXiv:2205.14135.  By steps:
 * scores and a_j are stored twice, and so are the gradients of each query head before those of heads that share a key
 * head are added.  Each of these that is subnormal is off by `tiny`, times what it is multiplied by.
 */
#include "ref/model/transformer.h"
#include "emulated_devices/check/recompute/parts.h"
#include <string.h>

/* ---- the rows that have keys ------------------------------------------------------------------------------------- */

/* Those of the batch, then the prefixes of all streams; [rows, (H+2K)A], of a prefix without queries. */
struct rows {
    struct tensor x;
    int64_t S, T;                       /* tokens of a sequence, and of a prefix */
    int64_t window;                     /* keys that a query sees, up to itself; 0: all */
    int64_t tokens, each;               /* rows of the batch, and of one stream */
    struct tensor mask;                 /* of probabilities, [sequences H S, S]; none: all are kept */
    double kept;                        /* 1/(1-rate) */
    const double *sink;                 /* [H] of each head the logit of its sink; NULL: none has one */
};

static struct rows rows_new(struct single *s, const struct single_node *n)
{
    const struct tensor X = single_act(s, n->in[0]), own = single_param(s, n->weight),
                        prefix = s->context->config->sinks ? tensor_none : own;
    struct rows r = { .S = s->cursor.batch.S, .window = model_window(s->context->config, n->layer), .each = s->cursor.N,
                      .kept = 1 / (1 - n->rate), .mask = single_mask(s, n) };
    if (!single_going(s)) return r;
    const int64_t width = tensor_cols(X), more = tensor_rows(prefix), q = s->context->config->H * s->context->config->A;
    if (s->context->config->sinks) r.sink = numbers(own);
    r.x = X, r.tokens = tensor_rows(X), r.T = s->context->config->streams.prefix * (more > 0);
    if (more == 0) return r;
    r.x = single_new(s, r.tokens + more, width);
    if (s->failed) return r;
    memcpy(r.x.data, X.data, tensor_bytes(X));
    for (int64_t row = 0; row < more; row++)
        memcpy(numbers(r.x) + (r.tokens + row) * width + q, numbers(prefix) + row * (width - q),
               (size_t)(width - q) * sizeof(double));
    return r;
}

/* The row of the first token that the query of row n sees. */
static int64_t first_row(const struct rows *r, int64_t n)
{
    const int64_t at = n % r->S;
    return n - (r->window > 0 && r->window <= at ? r->window - 1 : at);
}

static int64_t keys_of(const struct rows *r, int64_t n) { return r->T + n + 1 - first_row(r, n); }

static int64_t key_row(const struct rows *r, int64_t n, int64_t j)
{
    return j < r->T ? r->tokens + n / r->each * r->T + j : first_row(r, n) + j - r->T;
}

static const double *row_at(const struct rows *r, int64_t row, int64_t col)
{
    return numbers(r->x) + row * tensor_cols(r->x) + col;
}

/* How often a probability counts. */
static double times_of(const struct single *s, const struct rows *r, int64_t n, int64_t h, int64_t j)
{
    if (!tensor_present(r->mask)) return 1;
    const int64_t row = (n / r->S * s->context->config->H + h) * r->S + n % r->S;
    return numbers(r->mask)[row * r->S + j] * r->kept;
}

/* The columns of a head.  A result has as many as a value, which may be fewer: the others are zeros. */
struct heads { int64_t query, key, value; };

static struct heads heads_of(const struct model_config *c, int64_t h)
{
    const int64_t k = h / (c->H / c->K);
    return (struct heads){ h * c->A, (c->H + k) * c->A, (c->H + c->K + k) * c->A };
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Twice: as a fused program computes, and with steps and terms stored. */
enum { FUSED, STEPS, WAYS };

/* What an output element sums: value, absolute values, their squares, and errors of the terms. */
struct gathered { struct tensor y, absolute, square, off[WAYS]; };

static struct gathered gathered_new(struct single *s, int64_t rows, int64_t cols)
{
    return (struct gathered){ single_new(s, rows, cols), single_new(s, rows, cols), single_new(s, rows, cols),
                              { single_new(s, rows, cols), single_new(s, rows, cols) } };
}

/* The elements from one on. */
struct sums { double *y, *absolute, *square, *off[WAYS]; };

static struct sums sums_at(const struct gathered *g, int64_t at)
{
    return (struct sums){ numbers(g->y) + at, numbers(g->absolute) + at, numbers(g->square) + at,
                          { numbers(g->off[FUSED]) + at, numbers(g->off[STEPS]) + at } };
}

/* Add a x[i], i below n; a term is off by off[way] |x[i]|. */
static void gather(struct sums g, double a, const double *x, const double off[WAYS], int64_t n)
{
    double *restrict y = g.y, *restrict absolute = g.absolute, *restrict square = g.square,
                     *restrict fused = g.off[FUSED], *restrict steps = g.off[STEPS];
    const double off_fused = off[FUSED], off_steps = off[STEPS];
    for (int64_t i = 0; i < n; i++) {
        const double t = a * x[i], size = fabs(x[i]);
        y[i] += t, absolute[i] += fabs(t), square[i] += t * t;
        fused[i] += off_fused * size, steps[i] += off_steps * size;
    }
}

/* What was gathered from n terms. */
static struct single_value finish(struct single *s, const struct gathered *g, int64_t terms)
{
    const struct rounding *r = &s->rounding;
    const double sum = rounding_of_sum(r->sum, terms), tiny = tiny_terms(r->sum_tiny, terms);
    for (int64_t i = 0; !s->failed && i < tensor_count(g->y); i++) {
        const double all = numbers(g->absolute)[i],
                     stored = rounding_of_terms(r->store, all, sqrt(numbers(g->square)[i]));
        numbers(g->off[FUSED])[i] += 2 * sum * all + stored + tiny;
        numbers(g->off[STEPS])[i] += 2 * sum * all + 2 * stored + tiny;
    }
    return (struct single_value){ .y = g->y, .fused = g->off[FUSED], .steps = g->off[STEPS] };
}

/* Parts of a parameter's gradient that are stored and then added move the sum by this. */
static double off_parts(const struct single *s, double absolute)
{
    return (s->rounding.gradient_parts - 1) * 2 * (s->rounding.store * absolute + s->rounding.tiny);
}

static double dot(const double *a, const double *b, int64_t n, double *absolute)
{
    double sum = 0, all = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i], all += fabs(a[i] * b[i]);
    *absolute = all;
    return sum;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* One query of one head, and its keys. */
struct query {
    int64_t row, keys;
    struct heads at;
    double *p, *off[WAYS], *times;      /* [keys] probabilities; how far a score is off; how often it counts */
    double *x, *off_x[WAYS];            /* [keys] of the backward pass */
    double *y;                          /* [A] the result */
    double *slope, *bend;               /* [keys] of the cap of scores: 1 and 0 without one */
    double mean_off[WAYS];              /* sum of p off */
    double sink, off_sink[WAYS];        /* the probability of the sink, and how far its logit is off; 0: none */
    double d, off_d[WAYS];              /* of the backward pass: the sum of p dy . v, and how far it is off */
};

enum { QUERY_ARRAYS = 10 };

/* For each of some heads, whose queries are computed side by side. */
static struct tensor query_scratch(struct single *s, const struct rows *r, int64_t heads)
{
    const int64_t keys = r->S + r->T;
    return single_new(s, QUERY_ARRAYS * heads, keys > s->context->config->A ? keys : s->context->config->A);
}

/* How far a probability that is subnormal is off; by steps its exponential is, too. */
static void tiny_probability(const struct single *s, double tiny[WAYS])
{
    tiny[FUSED] = s->rounding.tiny, tiny[STEPS] = 2 * s->rounding.tiny;
}

/* A score becomes its soft cap; by steps, quotient, tanh and product are stored. */
static void cap_score(const struct single *s, struct query *q, int64_t j)
{
    const double cap = s->context->config->score_cap, x = q->p[j], T = cap > 0 ? tanh(x / cap) : 0, u = s->rounding.sum;
    q->slope[j] = 1 - T * T, q->bend[j] = cap > 0 ? 2 * fabs(T) / cap : 0;
    if (cap == 0) return;
    q->p[j] = cap * T;
    for (int way = 0; way < WAYS; way++) {
        const double store = way == STEPS ? s->rounding.store : 0;
        q->off[way][j] = q->slope[j] * (q->off[way][j] + (2 * u + store) * fabs(x)) +
                         (4 * u + 2 * store) * fabs(cap * T) + (way == STEPS ? s->rounding.tiny * cap * 2 : 0);
    }
}

/* One more key, without a value.  Other programs put its logit beside the scores and take away the largest: what is
 * left is stored. */
static void take_sink(const struct single *s, struct query *q, double logit, double top, double *sum)
{
    q->sink = exp(logit - top), *sum += q->sink;
    q->sink /= *sum;
    q->off_sink[FUSED] = s->rounding.sum * (4 + 3 * fabs(logit) + 2 * fabs(top));
    q->off_sink[STEPS] = q->off_sink[FUSED] + s->rounding.store * (fabs(logit) + fabs(top)) + 2 * s->rounding.tiny;
    for (int way = 0; way < WAYS; way++) q->mean_off[way] += q->sink * q->off_sink[way];
}

static struct query query_of(const struct single *s, const struct rows *r, int64_t n, int64_t h, double *scratch,
                             int64_t room)
{
    const struct model_config *c = s->context->config;
    double *const a = scratch;
    struct query q = { .row = n, .keys = keys_of(r, n), .at = heads_of(c, h), .p = a, .off = { a + room, a + 2 * room },
                       .times = a + 3 * room, .x = a + 4 * room, .off_x = { a + 5 * room, a + 6 * room },
                       .y = a + 7 * room, .slope = a + 8 * room, .bend = a + 9 * room };
    const double scale = attention_scale(c), g = rounding_of_sum(s->rounding.sum, c->A),
                 *const mine = row_at(r, n, q.at.query);
    const double logit = r->sink ? r->sink[h] : -INFINITY;
    double top = logit, sum = 0, absolute;
    for (int64_t j = 0; j < q.keys; j++) {
        q.p[j] = scale * dot(mine, row_at(r, key_row(r, n, j), q.at.key), c->A, &absolute);
        q.off[FUSED][j] = g * scale * absolute + scale * tiny_terms(s->rounding.sum_tiny, c->A);
        q.off[STEPS][j] = q.off[FUSED][j] + 2 * s->rounding.store * fabs(q.p[j]) + (1 + scale) * s->rounding.tiny;
        cap_score(s, &q, j);
        q.times[j] = times_of(s, r, n, h, first_row(r, n) % r->S + j);
        top = fmax(top, q.p[j]);
    }
    for (int64_t j = 0; j < q.keys; j++) {
        for (int way = 0; way < WAYS; way++) q.off[way][j] += s->rounding.sum * (4 + 3 * fabs(q.p[j]) + 2 * fabs(top));
        if (r->sink) q.off[STEPS][j] += s->rounding.store * (fabs(q.p[j]) + fabs(top));
        q.p[j] = exp(q.p[j] - top), sum += q.p[j];
    }
    if (r->sink) take_sink(s, &q, logit, top, &sum);
    for (int64_t j = 0; j < q.keys; j++) {
        q.p[j] /= sum;
        for (int way = 0; way < WAYS; way++) q.mean_off[way] += q.p[j] * q.off[way][j];
    }
    return q;
}

/* If all probabilities count once, errors that all scores have in common cancel. */
static void gather_row(const struct query *q, const struct rows *r, struct sums to, int64_t A,
                       const double tiny_p[WAYS])
{
    const bool all = !tensor_present(r->mask);
    for (int64_t j = 0; j < q->keys; j++)
        gather(to, q->p[j] * q->times[j], row_at(r, key_row(r, q->row, j), q->at.value),
               (double[WAYS]){ tiny_p[FUSED] * q->times[j], tiny_p[STEPS] * q->times[j] }, A);
    for (int64_t j = 0; j < q->keys; j++) {
        const double *value = row_at(r, key_row(r, q->row, j), q->at.value);
        for (int64_t a = 0; a < A; a++) {
            const double v = value[a] * q->times[j], size = q->p[j] * fabs(all ? v - to.y[a] : v);
            for (int way = 0; way < WAYS; way++)
                to.off[way][a] += (q->off[way][j] + (all ? 0 : q->mean_off[way])) * size;
        }
    }
    for (int64_t a = 0; a < A && q->sink > 0 && all; a++)
        for (int way = 0; way < WAYS; way++) to.off[way][a] += q->sink * q->off_sink[way] * fabs(to.y[a]);
}

static struct single_value forward(struct single *s, const struct single_node *n)
{
    const struct model_config *c = s->context->config;
    const struct rows r = rows_new(s, n);
    if (!single_going(s)) return single_stop(s);
    const struct gathered g = gathered_new(s, r.tokens, single_slot(s, n->out)->cols);
    const struct tensor scratch = query_scratch(s, &r, c->H);
    const int64_t room = tensor_cols(scratch);
    double tiny_p[WAYS];
    if (s->failed) return single_stop(s);
    tiny_probability(s, tiny_p);
    #pragma omp parallel for schedule(static)
    for (int64_t h = 0; h < c->H; h++)
        for (int64_t row = 0; row < r.tokens; row++) {
            const struct query q = query_of(s, &r, row, h, numbers(scratch) + h * QUERY_ARRAYS * room, room);
            gather_row(&q, &r, sums_at(&g, (row * c->H + h) * value_width(c)), value_width(c), tiny_p);
        }
    return finish(s, &g, r.S + r.T);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* y and dy: how far y, and with it d, is off, and by how much the stored result is not y. */
static void result_of(const struct rows *w, struct query *q, const double *dy, const double *result, int64_t A,
                      double *absolute, double *apart)
{
    for (int64_t a = 0; a < A; a++) q->y[a] = 0;
    for (int64_t j = 0; j < q->keys; j++) {
        const double *value = row_at(w, key_row(w, q->row, j), q->at.value), p = q->p[j] * q->times[j];
        for (int64_t a = 0; a < A; a++) q->y[a] += p * value[a];
    }
    *absolute = *apart = 0;
    for (int64_t a = 0; a < A; a++) *absolute += fabs(q->y[a] * dy[a]), *apart += dy[a] * (result[a] - q->y[a]);
}

/* How far the slope of a cap is off, and, by steps, what is stored before and after the products with it. */
static double off_slope(const struct single *s, const struct query *q, int64_t j, int way)
{
    const double T = q->bend[j] * s->context->config->score_cap / 2;
    if (s->context->config->score_cap == 0) return 0;
    return q->bend[j] * q->off[way][j] + 4 * s->rounding.sum + 2 * T * T * s->rounding.store +
           (way == STEPS ? 3 * s->rounding.store * q->slope[j] : 0);
}

/* The gradients of a query's scores, p (a - d) times the scale, into q->x; q->off_x: how far they are off by
 * themselves.  @param[out] common  how far d is off, times the scale. */
static void slopes(const struct single *s, const struct rows *w, struct query *q, const double *dy,
                   const double *result, double common[WAYS])
{
    const struct model_config *c = s->context->config;
    const struct rounding *r = &s->rounding;
    const int64_t V = value_width(c);
    const double g = rounding_of_sum(r->sum, V), scale = attention_scale(c);
    double d = 0, absolute, absolute_d, d_of_result, tiny_p[WAYS];
    tiny_probability(s, tiny_p);
    for (int64_t j = 0; j < q->keys; j++) {
        q->x[j] = q->times[j] * dot(dy, row_at(w, key_row(w, q->row, j), q->at.value), V, &absolute);
        q->off_x[FUSED][j] = (g * absolute + tiny_terms(r->sum_tiny, V)) * q->times[j];
        q->off_x[STEPS][j] = q->off_x[FUSED][j] + 2 * r->store * fabs(q->x[j]) + (1 + q->times[j]) * r->tiny;
        d += q->p[j] * q->x[j];
    }
    result_of(w, q, dy, result, V, &absolute_d, &d_of_result);
    for (int way = 0; way < WAYS; way++) {
        double off = (rounding_of_sum(r->sum, V + q->keys) + 3 * r->sum) * absolute_d + fabs(d_of_result) +
                     tiny_terms(r->sum_tiny, V + q->keys) + (way == STEPS ? r->tiny : 0);
        for (int64_t j = 0; j < q->keys; j++) {
            const double apart = fabs(q->x[j] - d), own = q->off_x[way][j];
            off += q->p[j] * (q->off[way][j] * apart + (way == STEPS ? own : g * fabs(q->x[j]))) +
                   tiny_p[way] * fabs(q->x[j]);
            q->off_x[way][j] = scale * q->p[j] * ((q->off[way][j] + q->mean_off[way] + 4 * r->sum) * apart + own +
                                                  r->sum * (fabs(q->x[j]) + fabs(d)));
            q->off_x[way][j] += (way == STEPS ? 2 * r->store : 0) * scale * q->p[j] * apart + r->tiny +
                                scale * (tiny_p[way] * apart + (way == STEPS ? r->tiny : r->sum_tiny));
            q->off_x[way][j] = q->slope[j] * q->off_x[way][j] + scale * q->p[j] * apart * off_slope(s, q, j, way);
        }
        off += q->sink * q->off_sink[way] * fabs(d);
        q->off_d[way] = off, common[way] = off * scale;
    }
    for (int64_t j = 0; j < q->keys; j++) q->x[j] = scale * q->p[j] * (q->x[j] - d) * q->slope[j];
    q->d = d;
}

/* Add what a query contributes to the gradients of itself, its keys and values, which have V numbers. */
static void spread(const struct single *s, const struct gathered *g, const struct rows *r, const struct query *q,
                   const double common[WAYS], const double *dy)
{
    const int64_t width = tensor_cols(g->y), A = s->context->config->A, V = value_width(s->context->config);
    double tiny_p[WAYS];
    tiny_probability(s, tiny_p);
    const struct sums my = sums_at(g, q->row * width + q->at.query);
    const double *mine = row_at(r, q->row, q->at.query);
    double *const mean = q->y;                                  /* of the keys; y has been used */
    for (int64_t a = 0; a < A; a++) mean[a] = 0;
    for (int64_t j = 0; j < q->keys; j++) {
        const int64_t row = key_row(r, q->row, j);
        const double *key = row_at(r, row, q->at.key), p = q->p[j] * q->times[j];
        double off[3][WAYS];
        for (int way = 0; way < WAYS; way++) {
            off[0][way] = q->off_x[way][j], off[1][way] = q->off_x[way][j] + q->p[j] * q->slope[j] * common[way];
            off[2][way] = p * (q->off[way][j] + q->mean_off[way]) + tiny_p[way] * q->times[j];
        }
        gather(my, q->x[j], key, off[0], A);
        gather(sums_at(g, row * width + q->at.key), q->x[j], mine, off[1], A);
        gather(sums_at(g, row * width + q->at.value), p, dy, off[2], V);
        for (int64_t a = 0; a < A; a++) mean[a] += q->p[j] * q->slope[j] * key[a];
    }
    for (int way = 0; way < WAYS; way++)
        for (int64_t a = 0; a < A; a++) my.off[way][a] += common[way] * fabs(mean[a]);
}

/* What a head added to the gradients of keys and values is stored, and so is the sum. */
static void store_head(const struct single *s, const struct gathered *g, double *before, struct heads at)
{
    const int64_t A = s->context->config->A;
    for (int64_t n = 0; n < tensor_rows(g->y); n++)
        for (int64_t a = 0; a < 2 * A; a++) {
            const int64_t to = n * tensor_cols(g->y) + (a < A ? at.key + a : at.value + a - A);
            const double now = numbers(g->y)[to];
            numbers(g->off[STEPS])[to] += s->rounding.store * (fabs(now - before[to]) + fabs(now)) + s->rounding.tiny;
            before[to] = now;
        }
}

static void gather_head(const struct single *s, const struct rows *r, struct tensor y, struct tensor dy, int64_t h,
                        const struct gathered *g, double *scratch, int64_t room)
{
    const struct model_config *c = s->context->config;
    for (int64_t n = 0; n < r->tokens; n++) {
        const int64_t at = (n * c->H + h) * value_width(c);
        const double *my_dy = numbers(dy) + at, *my_y = numbers(y) + at;
        struct query q = query_of(s, r, n, h, scratch, room);
        double common[WAYS];
        slopes(s, r, &q, my_dy, my_y, common);
        spread(s, g, r, &q, common, my_dy);
    }
}

/* The gradients of all rows that have keys.  Heads that share keys add to the same sums, one after another. */
static struct single_value backward(struct single *s, const struct single_node *n)
{
    const struct model_config *c = s->context->config;
    const struct rows r = rows_new(s, n);
    const struct tensor dY = single_grad(s, n->out), O = single_act(s, n->out);
    if (!single_going(s)) return single_stop(s);
    const int64_t rows = tensor_rows(r.x), width = tensor_cols(r.x), sharing = c->H / c->K;
    const struct gathered g = gathered_new(s, rows, width);
    const struct tensor scratch = query_scratch(s, &r, c->K), before = single_new(s, rows, width);
    const int64_t room = tensor_cols(scratch);
    if (s->failed) return single_stop(s);
    #pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < c->K; k++)
        for (int64_t h = k * sharing; h < (k + 1) * sharing; h++) {
            gather_head(s, &r, O, dY, h, &g, numbers(scratch) + k * QUERY_ARRAYS * room, room);
            if (c->K < c->H) store_head(s, &g, numbers(before), heads_of(c, h));
        }
    return finish(s, &g, r.S * sharing * (r.T > 0 ? s->context->all.B : 1));
}

static struct tensor some(struct single *s, struct tensor t, int64_t first, int64_t rows, int64_t col)
{
    const int64_t cols = tensor_cols(t) - col;
    const struct tensor out = single_new(s, rows, cols);
    for (int64_t i = 0; !s->failed && i < rows * cols; i++)
        numbers(out)[i] = numbers(t)[(first + i / cols) * tensor_cols(t) + col + i % cols];
    return out;
}

/* Rows of a value, from a column on. */
static struct single_value part_of(struct single *s, struct single_value v, int64_t first, int64_t rows, int64_t col)
{
    if (!single_going(s)) return single_stop(s);
    return (struct single_value){ .y = some(s, v.y, first, rows, col), .fused = some(s, v.fused, first, rows, col),
                                  .steps = some(s, v.steps, first, rows, col) };
}

static struct single_value input(struct single *s, const struct single_node *n)
{
    return part_of(s, backward(s, n), 0, single_rows(s, single_slot(s, n->in[0])), 0);
}

/* To, or from, the last rows of another. */
static void copy_last(struct gathered *all, struct gathered *tile, bool back)
{
    struct tensor *const to[] = { &tile->y, &tile->off[FUSED], &tile->off[STEPS], &tile->absolute, &tile->square },
                  *const of[] = { &all->y, &all->off[FUSED], &all->off[STEPS], &all->absolute, &all->square };
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        const size_t n = tensor_bytes(*of[i]);
        char *const last = (char *)to[i]->data + tensor_bytes(*to[i]) - n;
        memcpy(back ? of[i]->data : (void *)last, back ? (void *)last : of[i]->data, n);
    }
}

/* Add what the tile's queries of the i-th head of each group contribute. */
static void gather_tile(struct single *s, const struct single_node *n, int64_t i, struct gathered *all)
{
    const struct model_config *c = s->context->config;
    const struct rows r = rows_new(s, n);
    const struct tensor dY = single_grad(s, n->out), O = single_act(s, n->out);
    if (!single_going(s)) return;
    struct gathered g = gathered_new(s, tensor_rows(r.x), tensor_cols(r.x));
    const struct tensor scratch = query_scratch(s, &r, c->K);
    const int64_t room = tensor_cols(scratch);
    if (s->failed) return;
    copy_last(all, &g, false);
    #pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < c->K; k++)
        gather_head(s, &r, O, dY, k * (c->H / c->K) + i, &g, numbers(scratch) + k * QUERY_ARRAYS * room, room);
    copy_last(all, &g, true);
}

/* The keys and values of all prefixes, tile after tile.  What a head added is stored when all tiles have theirs. */
static struct single_value weight(struct single *s, const struct single_node *n)
{
    const struct model_config *c = s->context->config;
    const int64_t rows = model_param(c, n->weight).dim[0], width = single_slot(s, n->in[0])->cols, q = c->H * c->A;
    struct gathered all = gathered_new(s, rows, width);
    const struct tensor before = single_new(s, rows, width);
    const int used = s->memory.used;
    for (int64_t i = 0; i < c->H / c->K; i++) {
        for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);)
            gather_tile(s, n, i, &all), single_release(s, used);
        single_take_all(s);
        for (int64_t k = 0; k < c->K && c->K < c->H && single_going(s); k++)
            store_head(s, &all, numbers(before), heads_of(c, k * (c->H / c->K) + i));
    }
    if (!single_going(s)) return single_stop(s);
    const struct single_value v = finish(s, &all, s->context->all.S * (c->H / c->K) * s->context->all.B);
    for (int64_t i = 0; single_going(s) && i < tensor_count(v.y); i++) {
        const double off = off_parts(s, numbers(all.absolute)[i]);
        numbers(v.fused)[i] += off, numbers(v.steps)[i] += off;
    }
    return part_of(s, v, 0, rows, q);
}

/* Of each sink [H]: the sum over rows of -p d, where p is the sink's probability; absolute and squared terms. */
struct sinks { struct single_value v; struct tensor all, square; };

static void add_sink(const struct single *s, const struct rows *r, struct tensor y, struct tensor dy, int64_t h,
                     const struct sinks *to, double *scratch, int64_t room)
{
    const struct model_config *c = s->context->config;
    double *const off[WAYS] = { [FUSED] = numbers(to->v.fused) + h, [STEPS] = numbers(to->v.steps) + h };
    for (int64_t n = 0; n < r->tokens; n++) {
        struct query q = query_of(s, r, n, h, scratch, room);
        double common[WAYS];
        slopes(s, r, &q, numbers(dy) + (n * c->H + h) * c->A, numbers(y) + (n * c->H + h) * c->A, common);
        const double term = q.sink * q.d;
        numbers(to->v.y)[h] -= term, numbers(to->all)[h] += fabs(term), numbers(to->square)[h] += term * term;
        for (int way = 0; way < WAYS; way++)
            *off[way] += q.sink * q.off_d[way] + (q.off_sink[way] + q.mean_off[way] + 4 * s->rounding.sum) * fabs(term);
    }
}

/* Tile after tile. */
static struct single_value sink_weight(struct single *s, const struct single_node *n)
{
    const int64_t H = s->context->config->H;
    const struct sinks sums = { single_value_new(s, 1, H), single_new(s, 1, H), single_new(s, 1, H) };
    const int used = s->memory.used;
    for (struct single_tiles t = single_tiles_weight(s, n); single_going(s) && single_next_tile(s, &t);) {
        const struct rows r = rows_new(s, n);
        const struct tensor dY = single_grad(s, n->out), O = single_act(s, n->out),
                            scratch = single_going(s) ? query_scratch(s, &r, 1) : tensor_none;
        for (int64_t h = 0; h < H && single_going(s); h++)
            add_sink(s, &r, O, dY, h, &sums, numbers(scratch), tensor_cols(scratch));
        single_release(s, used);
    }
    single_take_all(s);
    for (int64_t h = 0; h < H && single_going(s); h++) {
        const double all = numbers(sums.all)[h], sum = rounding_of_sum(s->rounding.sum, s->cursor.N) * all,
                     stored = rounding_of_terms(s->rounding.store, all, sqrt(numbers(sums.square)[h]));
        const double fused = sum + tiny_terms(s->rounding.sum_tiny, s->cursor.N) + off_parts(s, all);
        numbers(sums.v.fused)[h] += fused;
        numbers(sums.v.steps)[h] += fused + 3 * (stored + tiny_terms(s->rounding.tiny, s->cursor.N));
    }
    return single_going(s) ? sums.v : single_stop(s);
}

const struct single_operation single_sink_attention = {
    .words = "attention with sinks",
    .forward = forward,
    .input_words = "the backward pass of attention",
    .input = { input },
    .weight_words = "the backward pass of attention for its sinks",
    .weight = sink_weight,
};

const struct single_operation single_attention = {
    .words = "attention",
    .forward = forward,
    .input_words = "the backward pass of attention",
    .input = { input },
};

const struct single_operation single_prefixed_attention = {
    .words = "attention to prefixes and tokens",
    .forward = forward,
    .input_words = "the backward pass of attention",
    .input = { input },
    .weight_words = "the backward pass of attention for its prefixes",
    .weight = weight,
};
