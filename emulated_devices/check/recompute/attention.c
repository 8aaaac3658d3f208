/* attention.c -- causal attention, in some layers to a window of the last keys, forward and backward.
 *
 * The file computes attention in fp64 from a program's own inputs.  For each element it bounds the error that the
 * program's rounding may cause.  `off` is such a bound, to first order.  A bound by steps (STEPS) lets a program store
 * the numbers between the steps of attention.  FUSED allows only what is listed below as always allowed.  `tiny` is
 * half the smallest step of the program's format, by which underflow may change a subnormal number.
 *
 * One query with keys j has scores x_j, probabilities p_j, y = sum of p_j v_j.  If score j is off by e_j, p_j is off
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
 * walk.c runs the passes, through single_attention and its variants in the table of replay.c.  Without memory
 * single.failed is ERR_MEMORY, and the results must not be used.  Rows of heads are independent, so OpenMP threads
 * share the heads; each thread has scratch of its own.  The batch or a tile of whole sequences is computed at once.
 */
#include "ref/model/transformer.h"
#include "emulated_devices/check/recompute/parts.h"
#include "ref/model/params.h"
#include <string.h>

/* ---- the rows that have keys ------------------------------------------------------------------------------------- */

/* These are the rows that have keys: those of the batch, then the prefixes of all streams.  x is [rows, (H+2K)A]; a
 * prefix has no queries. */
struct rows {
    struct tensor x;
    int64_t S, T;                       /* tokens of a sequence, and of a prefix */
    int64_t window;                     /* keys that a query sees, up to itself; 0: all */
    int64_t tokens, each;               /* rows of the batch, and of one stream */
    struct tensor mask;                 /* of probabilities, [sequences H S, S]; none: all are kept */
    double kept;                        /* 1/(1-rate) */
    const int32_t *positions;           /* of the batch's packed documents; NULL: a sequence is one */
    const double *sink;                 /* [H] of each head the logit of its sink; NULL: none has one */
};

/* Collect the rows of the batch and of prefixes.  A weight of the node is its sinks or its prefixes, never both. */
static struct rows rows_new(struct single *single, const struct single_node *node)
{
    const struct tensor X = single_act(single, node->in[0]), own = single_param(single, node->weight),
                        prefix = single->context->config->sinks ? tensor_none : own;
    struct rows r = { .S = single->cursor.batch.S, .window = model_window(single->context->config, node->layer),
                     .each = single->cursor.N,
                      .kept = 1 / (1 - node->rate), .mask = single_mask(single, node),
                     .positions = single->cursor.batch.positions };
    if (!single_going(single)) return r;
    /* A prefix row has keys and values only; they go behind q columns of zeros. */
    const int64_t width = tensor_cols(X), more = tensor_rows(prefix),
        q = single->context->config->H * single->context->config->A;
    if (single->context->config->sinks) r.sink = numbers(own);
    r.x = X, r.tokens = tensor_rows(X), r.T = single->context->config->streams.prefix * (more > 0);
    if (more == 0) return r;
    r.x = single_new(single, r.tokens + more, width);
    if (single->failed) return r;
    memcpy(r.x.data, X.data, tensor_bytes(X));
    for (int64_t row = 0; row < more; row++)
        memcpy(numbers(r.x) + (r.tokens + row) * width + q, numbers(prefix) + row * (width - q),
               (size_t)(width - q) * sizeof(double));
    return r;
}

/* This is the row of the first token that the query of row n sees: its document's first, or the window's. */
static int64_t first_row(const struct rows *rows, int64_t n)
{
    const int64_t at = rows->positions ? sample_position(rows->positions[n]) : n % rows->S;
    return n - (rows->window > 0 && rows->window <= at ? rows->window - 1 : at);
}

/* Keys of a query: its prefix, and all tokens from the first that it sees to itself. */
static int64_t keys_of(const struct rows *rows, int64_t n) { return rows->T + n + 1 - first_row(rows, n); }

/* Key j of query n is in this row: rows of the stream's prefix come first, then tokens. */
static int64_t key_row(const struct rows *rows, int64_t n, int64_t j)
{
    return j < rows->T ? rows->tokens + n / rows->each * rows->T + j : first_row(rows, n) + j - rows->T;
}

static const double *row_at(const struct rows *rows, int64_t row, int64_t col)
{
    return numbers(rows->x) + row * tensor_cols(rows->x) + col;
}

/* How often a probability counts: 1 without dropout, else 0 or 1/(1-rate). */
static double times_of(const struct single *single, const struct rows *rows, int64_t n, int64_t h, int64_t j)
{
    if (!tensor_present(rows->mask)) return 1;
    const int64_t row = (n / rows->S * single->context->config->H + h) * rows->S + n % rows->S;
    return numbers(rows->mask)[row * rows->S + j] * rows->kept;
}

/* These are the columns of a head.  A result has as many as a value, which may be fewer: the others are zeros. */
struct heads { int64_t query, key, value; };

/* These are the columns where head h finds its query, and its group's key and value. */
static struct heads heads_of(const struct model_config *config, int64_t h)
{
    const int64_t k = h / (config->H / config->K);
    return (struct heads){ h * config->A, (config->H + k) * config->A, (config->H + config->K + k) * config->A };
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* All bounds are kept twice: as a fused program computes, and with steps and terms stored. */
enum { FUSED, STEPS, WAYS };

/* These are the sums of each output element: value, absolute values, their squares, and errors of the terms. */
struct gathered { struct tensor y, absolute, square, off[WAYS]; };

static struct gathered gathered_new(struct single *single, int64_t rows, int64_t cols)
{
    return (struct gathered){ single_new(single, rows, cols), single_new(single, rows, cols),
                             single_new(single, rows, cols),
                              { single_new(single, rows, cols), single_new(single, rows, cols) } };
}

/* These are the sums from one element on. */
struct sums { double *y, *absolute, *square, *off[WAYS]; };

static struct sums sums_at(const struct gathered *gathered, int64_t at)
{
    return (struct sums){ numbers(gathered->y) + at, numbers(gathered->absolute) + at, numbers(gathered->square) + at,
                          { numbers(gathered->off[FUSED]) + at, numbers(gathered->off[STEPS]) + at } };
}

/* Add a x[i] for each i below n.  Each term is off by off[way] |x[i]|. `restrict` tells the compiler that the five
 * sums do not overlap, so the loop becomes vector instructions. */
static void attention_gather(struct sums sums, double a, const double *x, const double off[WAYS], int64_t n)
{
    double *restrict y = sums.y, *restrict absolute = sums.absolute, *restrict square = sums.square,
                     *restrict fused = sums.off[FUSED], *restrict steps = sums.off[STEPS];
    const double off_fused = off[FUSED], off_steps = off[STEPS];
    for (int64_t i = 0; i < n; i++) {
        const double t = a * x[i], size = fabs(x[i]);
        y[i] += t, absolute[i] += fabs(t), square[i] += t * t;
        fused[i] += off_fused * size, steps[i] += off_steps * size;
    }
}

/* Turn what was gathered from n terms into a value with bounds.  A sum of so many terms is off by rounding_of_sum()
 * of the absolute terms. */
static struct single_value attention_finish(struct single *single, const struct gathered *gathered, int64_t terms)
{
    const struct rounding *r = &single->rounding;
    const double sum = rounding_of_sum(r->sum, terms), tiny = tiny_terms(r->sum_tiny, terms);
    for (int64_t i = 0; !single->failed && i < tensor_count(gathered->y); i++) {
        const double all = numbers(gathered->absolute)[i],
                     stored = rounding_of_terms(r->store, all, sqrt(numbers(gathered->square)[i]));
        numbers(gathered->off[FUSED])[i] += 2 * sum * all + stored + tiny;
        numbers(gathered->off[STEPS])[i] += 2 * sum * all + 2 * stored + tiny;
    }
    return (struct single_value){ .y = gathered->y, .fused = gathered->off[FUSED], .steps = gathered->off[STEPS] };
}

/* Compute (a, b) of n numbers, and the sum of absolute products. */
static double dot(const double *a, const double *b, int64_t n, double *absolute)
{
    double sum = 0, all = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i], all += fabs(a[i] * b[i]);
    *absolute = all;
    return sum;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* This is a query of one head, and its keys. */
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
static struct tensor query_scratch(struct single *single, const struct rows *rows, int64_t heads)
{
    const int64_t keys = rows->S + rows->T;
    return single_new(single, QUERY_ARRAYS * heads,
                      keys > single->context->config->A ? keys : single->context->config->A);
}

/* How far a subnormal probability is off; by steps its exponential is subnormal, too. */
static void tiny_probability(const struct single *single, double tiny[WAYS])
{
    tiny[FUSED] = single->rounding.tiny, tiny[STEPS] = 2 * single->rounding.tiny;
}

/* A score becomes its soft cap, c tanh(x / c).  By steps quotient, tanh and product are stored.  The slope and its
 * bend are kept for the backward pass. */
static void cap_score(const struct single *single, struct query *query, int64_t j)
{
    const double cap = single->context->config->score_cap, x = query->p[j], T = cap > 0 ? tanh(x / cap) : 0,
        u = single->rounding.sum;
    query->slope[j] = 1 - T * T, query->bend[j] = cap > 0 ? 2 * fabs(T) / cap : 0;
    if (cap == 0) return;
    query->p[j] = cap * T;
    for (int way = 0; way < WAYS; way++) {
        const double store = way == STEPS ? single->rounding.store : 0;
        query->off[way][j] = query->slope[j] * (query->off[way][j] + (2 * u + store) * fabs(x)) +
                         (4 * u + 2 * store) * fabs(cap * T) + (way == STEPS ? single->rounding.tiny * cap * 2 : 0);
    }
}

/* Add the sink: a key more, without a value.  Other programs put its logit beside the scores and take away the
 * largest; the difference is stored. */
static void take_sink(const struct single *single, struct query *query, double logit, double top, double *sum)
{
    query->sink = exp(logit - top), *sum += query->sink;
    query->sink /= *sum;
    query->off_sink[FUSED] = single->rounding.sum * (4 + 3 * fabs(logit) + 2 * fabs(top));
    query->off_sink[STEPS] = query->off_sink[FUSED] + single->rounding.store * (fabs(logit) + fabs(top)) + 2
        * single->rounding.tiny;
    for (int way = 0; way < WAYS; way++) query->mean_off[way] += query->sink * query->off_sink[way];
}

/* Compute scores and probabilities of query n in head h, with the errors of both.  `scratch` has QUERY_ARRAYS
 * arrays of `room` numbers. */
static struct query query_of(const struct single *single, const struct rows *rows, int64_t n, int64_t h,
                             double *scratch, int64_t room)
{
    const struct model_config *c = single->context->config;
    double *const a = scratch;
    struct query q = { .row = n, .keys = keys_of(rows, n), .at = heads_of(c, h), .p = a,
                      .off = { a + room, a + 2 * room },
                       .times = a + 3 * room, .x = a + 4 * room, .off_x = { a + 5 * room, a + 6 * room },
                       .y = a + 7 * room, .slope = a + 8 * room, .bend = a + 9 * room };
    const double scale = attention_scale(c), g = rounding_of_sum(single->rounding.sum, c->A),
                 *const mine = row_at(rows, n, q.at.query);
    const double logit = rows->sink ? rows->sink[h] : -INFINITY;
    double top = logit, sum = 0, absolute;
    /* Compute the scores: scale (q, k), capped, and the largest of them. */
    for (int64_t j = 0; j < q.keys; j++) {
        q.p[j] = scale * dot(mine, row_at(rows, key_row(rows, n, j), q.at.key), c->A, &absolute);
        q.off[FUSED][j] = g * scale * absolute + scale * tiny_terms(single->rounding.sum_tiny, c->A);
        q.off[STEPS][j] = q.off[FUSED][j] + 2 * single->rounding.store * fabs(q.p[j]) + (1 + scale)
            * single->rounding.tiny;
        cap_score(single, &q, j);
        q.times[j] = times_of(single, rows, n, h, first_row(rows, n) % rows->S + j);
        top = fmax(top, q.p[j]);
    }
    /* Exponentials: a score's error, and those of the difference and of exp, are relative errors of p. */
    for (int64_t j = 0; j < q.keys; j++) {
        for (int way = 0; way < WAYS; way++)
            q.off[way][j] += single->rounding.sum * (4 + 3 * fabs(q.p[j]) + 2 * fabs(top));
        if (rows->sink) q.off[STEPS][j] += single->rounding.store * (fabs(q.p[j]) + fabs(top));
        q.p[j] = exp(q.p[j] - top), sum += q.p[j];
    }
    if (rows->sink) take_sink(single, &q, logit, top, &sum);
    /* The sum's own error is common to all probabilities and cancels in gather_row. */
    for (int64_t j = 0; j < q.keys; j++) {
        q.p[j] /= sum;
        for (int way = 0; way < WAYS; way++) q.mean_off[way] += q.p[j] * q.off[way][j];
    }
    return q;
}

/* y += p_j v_j.  If all probabilities count once, errors that all scores have in common cancel, so |v - y| bounds
 * the term.  With dropped probabilities |v| does. */
static void gather_row(const struct query *query, const struct rows *rows, struct sums to, int64_t A,
                       const double tiny_p[WAYS])
{
    const bool all = !tensor_present(rows->mask);
    for (int64_t j = 0; j < query->keys; j++)
        attention_gather(to, query->p[j] * query->times[j], row_at(rows, key_row(rows, query->row, j), query->at.value),
                         (double[WAYS]){ tiny_p[FUSED] * query->times[j], tiny_p[STEPS] * query->times[j] }, A);
    for (int64_t j = 0; j < query->keys; j++) {
        const double *value = row_at(rows, key_row(rows, query->row, j), query->at.value);
        for (int64_t a = 0; a < A; a++) {
            const double v = value[a] * query->times[j], size = query->p[j] * fabs(all ? v - to.y[a] : v);
            for (int way = 0; way < WAYS; way++)
                to.off[way][a] += (query->off[way][j] + (all ? 0 : query->mean_off[way])) * size;
        }
    }
    /* A sink has no value, so its error moves y by y itself. */
    for (int64_t a = 0; a < A && query->sink > 0 && all; a++)
        for (int way = 0; way < WAYS; way++) to.off[way][a] += query->sink * query->off_sink[way] * fabs(to.y[a]);
}

/* Y [N, H V] = P V of all heads.  Each head's rows are computed alone. */
static struct single_value recompute_attention_forward(struct single *single, const struct single_node *node)
{
    const struct model_config *c = single->context->config;
    const struct rows r = rows_new(single, node);
    if (!single_going(single)) return single_stop(single);
    const struct gathered g = gathered_new(single, r.tokens, single_slot(single, node->out)->cols);
    const struct tensor scratch = query_scratch(single, &r, c->H);
    const int64_t room = tensor_cols(scratch);
    double tiny_p[WAYS];
    if (single->failed) return single_stop(single);
    tiny_probability(single, tiny_p);
    /* Heads share no output, so each thread has some heads and its own scratch memory. */
    #pragma omp parallel for schedule(static)
    for (int64_t h = 0; h < c->H; h++)
        for (int64_t row = 0; row < r.tokens; row++) {
            /* Y [1, V] of this row and head = P [1, S] times the values [S, V]. */
            const struct query q = query_of(single, &r, row, h, numbers(scratch) + h * QUERY_ARRAYS * room, room);
            gather_row(&q, &r, sums_at(&g, (row * c->H + h) * value_width(c)), value_width(c), tiny_p);
        }
    return attention_finish(single, &g, r.S + r.T);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* y and dy: how far y is off, and with it d = (dy, y).  apart: by how much the stored result differs from y. */
static void result_of(const struct rows *rows, struct query *query, const double *dy, const double *result, int64_t A,
                      double *absolute, double *apart)
{
    for (int64_t a = 0; a < A; a++) query->y[a] = 0;
    for (int64_t j = 0; j < query->keys; j++) {
        const double *value = row_at(rows, key_row(rows, query->row, j), query->at.value),
            p = query->p[j] * query->times[j];
        for (int64_t a = 0; a < A; a++) query->y[a] += p * value[a];
    }
    *absolute = *apart = 0;
    for (int64_t a = 0; a < A; a++) *absolute += fabs(query->y[a] * dy[a]), *apart += dy[a] * (result[a] - query->y[a]);
}

/* How far the slope of a cap is off; by steps, what is stored before and after the products with it is added. */
static double off_slope(const struct single *s, const struct query *query, int64_t j, int way)
{
    const double T = query->bend[j] * s->context->config->score_cap / 2;
    if (s->context->config->score_cap == 0) return 0;
    return query->bend[j] * query->off[way][j] + 4 * s->rounding.sum + 2 * T * T * s->rounding.store +
           (way == STEPS ? 3 * s->rounding.store * query->slope[j] : 0);
}

/* Compute the gradients of a query's scores, p (a - d) scale, into query->x.  query->off_x has how far they are off
 * by themselves.  @param[out] common how far d is off, times the scale. */
static void slopes(const struct single *single, const struct rows *rows, struct query *query, const double *dy,
                   const double *result, double common[WAYS])
{
    const struct model_config *c = single->context->config;
    const struct rounding *r = &single->rounding;
    const int64_t V = value_width(c);
    const double g = rounding_of_sum(r->sum, V), scale = attention_scale(c);
    double d = 0, absolute, absolute_d, d_of_result, tiny_p[WAYS];
    tiny_probability(single, tiny_p);
    /* a_j = dy . v_j, with dropout's factor, and d = sum of p_j a_j. */
    for (int64_t j = 0; j < query->keys; j++) {
        query->x[j] = query->times[j] * dot(dy, row_at(rows, key_row(rows, query->row, j), query->at.value),
                                            V, &absolute);
        query->off_x[FUSED][j] = (g * absolute + tiny_terms(r->sum_tiny, V)) * query->times[j];
        query->off_x[STEPS][j] = query->off_x[FUSED][j] + 2 * r->store * fabs(query->x[j])
            + (1 + query->times[j]) * r->tiny;
        d += query->p[j] * query->x[j];
    }
    result_of(rows, query, dy, result, V, &absolute_d, &d_of_result);
    /* The error of d: its own sum, the result that is stored, and errors of scores and of a_j. */
    for (int way = 0; way < WAYS; way++) {
        double off = (rounding_of_sum(r->sum, V + query->keys) + 3 * r->sum) * absolute_d + fabs(d_of_result) +
                     tiny_terms(r->sum_tiny, V + query->keys) +
                     (way == STEPS ? tiny_terms(r->tiny, query->keys) + r->tiny : 0);
        for (int64_t j = 0; j < query->keys; j++) {
            const double apart = fabs(query->x[j] - d), own = query->off_x[way][j];
            off += query->p[j] * (query->off[way][j] * apart + (way == STEPS ? own : g * fabs(query->x[j]))) +
                   tiny_p[way] * fabs(query->x[j]);
            /* Bound the error of p (a - d) scale: of p, of a and d, then of the products. */
            query->off_x[way][j] = scale * query->p[j]
                * ((query->off[way][j] + query->mean_off[way] + 4 * r->sum) * apart + own +
                   r->sum * (fabs(query->x[j]) + fabs(d)));
            query->off_x[way][j] += (way == STEPS ? 2 * r->store : 0) * scale * query->p[j] * apart + r->tiny +
                                scale * (tiny_p[way] * apart + (way == STEPS ? r->tiny : r->sum_tiny));
            query->off_x[way][j] = query->slope[j] * query->off_x[way][j] + scale * query->p[j] * apart
                * off_slope(single, query, j, way);
        }
        off += query->sink * query->off_sink[way] * fabs(d);
        query->off_d[way] = off, common[way] = off * scale;
    }
    for (int64_t j = 0; j < query->keys; j++) query->x[j] = scale * query->p[j] * (query->x[j] - d) * query->slope[j];
    query->d = d;
}

/* Add what a query gives to the gradients: dQ += x k_j, dK_j += x q, dV_j += p_j dy.  Values have V numbers. */
static void attention_spread(const struct single *single, const struct gathered *gathered, const struct rows *rows,
                             const struct query *query, const double common[WAYS], const double *dy)
{
    const int64_t width = tensor_cols(gathered->y), A = single->context->config->A,
        V = value_width(single->context->config);
    double tiny_p[WAYS];
    tiny_probability(single, tiny_p);
    const struct sums my = sums_at(gathered, query->row * width + query->at.query);
    const double *mine = row_at(rows, query->row, query->at.query);
    double *const mean = query->y;                                  /* of the keys; y has been used */
    for (int64_t a = 0; a < A; a++) mean[a] = 0;
    for (int64_t j = 0; j < query->keys; j++) {
        const int64_t row = key_row(rows, query->row, j);
        const double *key = row_at(rows, row, query->at.key), p = query->p[j] * query->times[j];
        double off[3][WAYS];
        for (int way = 0; way < WAYS; way++) {
            off[0][way] = query->off_x[way][j], off[1][way] = query->off_x[way][j] + query->p[j] * query->slope[j]
                * common[way];
            off[2][way] = p * (query->off[way][j] + query->mean_off[way]) + tiny_p[way] * query->times[j];
        }
        attention_gather(my, query->x[j], key, off[0], A);
        attention_gather(sums_at(gathered, row * width + query->at.key), query->x[j], mine, off[1], A);
        attention_gather(sums_at(gathered, row * width + query->at.value), p, dy, off[2], V);
        for (int64_t a = 0; a < A; a++) mean[a] += query->p[j] * query->slope[j] * key[a];
    }
    /* The error of d is common to all keys: for dQ it meets the mean key. */
    for (int way = 0; way < WAYS; way++)
        for (int64_t a = 0; a < A; a++) my.off[way][a] += common[way] * fabs(mean[a]);
}

/* If heads share keys, the gradients of keys and values are stored after each head.  The sum with the heads before
 * is stored, too. */
static void store_head(const struct single *single, const struct gathered *gathered, double *before, struct heads at)
{
    const int64_t A = single->context->config->A;
    for (int64_t n = 0; n < tensor_rows(gathered->y); n++)
        for (int64_t a = 0; a < 2 * A; a++) {
            const int64_t to = n * tensor_cols(gathered->y) + (a < A ? at.key + a : at.value + a - A);
            const double now = numbers(gathered->y)[to];
            numbers(gathered->off[STEPS])[to] += single->rounding.store * (fabs(now - before[to]) + fabs(now))
                + single->rounding.tiny;
            before[to] = now;
        }
}

/* Add all queries of head h to the gradients of the rows that have keys. */
static void gather_head(const struct single *single, const struct rows *rows, struct tensor y,
                        struct tensor dy, int64_t h, const struct gathered *gathered, double *scratch, int64_t room)
{
    const struct model_config *c = single->context->config;
    for (int64_t n = 0; n < rows->tokens; n++) {
        const int64_t at = (n * c->H + h) * value_width(c);
        const double *my_dy = numbers(dy) + at, *my_y = numbers(y) + at;
        struct query q = query_of(single, rows, n, h, scratch, room);
        double common[WAYS];
        slopes(single, rows, &q, my_dy, my_y, common);
        attention_spread(single, gathered, rows, &q, common, my_dy);
    }
}

/* The gradients of all rows that have keys are made here.  Heads that share keys add to the same sums one after
 * another.  So a thread has all heads of a group. */
static struct single_value recompute_attention_backward(struct single *single, const struct single_node *node)
{
    const struct model_config *c = single->context->config;
    const struct rows r = rows_new(single, node);
    const struct tensor dY = single_grad(single, node->out), O = single_act(single, node->out);
    if (!single_going(single)) return single_stop(single);
    const int64_t rows = tensor_rows(r.x), width = tensor_cols(r.x), sharing = c->H / c->K;
    const struct gathered g = gathered_new(single, rows, width);
    /* `before` keeps a sum as the heads before have left it, since each head's addition stores the sum. */
    const struct tensor scratch = query_scratch(single, &r, c->K), before = single_new(single, rows, width);
    const int64_t room = tensor_cols(scratch);
    if (single->failed) return single_stop(single);
    /* dK and dV [rows, A] of group k get a part from each head h of the group. */
    #pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < c->K; k++)
        for (int64_t h = k * sharing; h < (k + 1) * sharing; h++) {
            gather_head(single, &r, O, dY, h, &g, numbers(scratch) + k * QUERY_ARRAYS * room, room);
            if (c->K < c->H) store_head(single, &g, numbers(before), heads_of(c, h));
        }
    return attention_finish(single, &g, r.S * sharing * (r.T > 0 ? single->context->all.B : 1));
}

/* Copy some rows of a matrix, from a column on. */
static struct tensor some(struct single *single, struct tensor t, int64_t first, int64_t rows, int64_t col)
{
    const int64_t cols = tensor_cols(t) - col;
    const struct tensor out = single_new(single, rows, cols);
    for (int64_t i = 0; !single->failed && i < rows * cols; i++)
        numbers(out)[i] = numbers(t)[(first + i / cols) * tensor_cols(t) + col + i % cols];
    return out;
}

/* Cut some rows of a value and of its bounds, from a column on. */
static struct single_value attention_part_of(struct single *single, struct single_value value, int64_t first,
                                             int64_t rows, int64_t col)
{
    if (!single_going(single)) return single_stop(single);
    return (struct single_value){ .y = some(single, value.y, first, rows, col),
                                 .fused = some(single, value.fused, first, rows, col),
                                  .steps = some(single, value.steps, first, rows, col) };
}

/* The gradient of the batch's fused queries, keys and values is cut out; prefixes' rows are left out. */
static struct single_value recompute_attention_input(struct single *single, const struct single_node *node)
{
    return attention_part_of(single, recompute_attention_backward(single, node), 0,
                             single_rows(single, single_slot(single, node->in[0])), 0);
}

/* Copy all sums into the last rows of a tile's sums, or back.  The last rows are those of the prefixes. */
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

/* Add what the tile's queries of the i-th head of each group contribute to prefixes. */
static void gather_tile(struct single *single, const struct single_node *node, int64_t i, struct gathered *all)
{
    const struct model_config *c = single->context->config;
    const struct rows r = rows_new(single, node);
    const struct tensor dY = single_grad(single, node->out), O = single_act(single, node->out);
    if (!single_going(single)) return;
    /* The sums of prefixes go on from tile to tile; all other rows begin at zero in each tile. */
    struct gathered g = gathered_new(single, tensor_rows(r.x), tensor_cols(r.x));
    const struct tensor scratch = query_scratch(single, &r, c->K);
    const int64_t room = tensor_cols(scratch);
    if (single->failed) return;
    copy_last(all, &g, false);
    #pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < c->K; k++)
        gather_head(single, &r, O, dY, k * (c->H / c->K) + i, &g, numbers(scratch) + k * QUERY_ARRAYS * room, room);
    copy_last(all, &g, true);
}

/* The gradients of keys and values of all prefixes are added up tile after tile.  A head's part is stored when all
 * tiles have theirs, so heads are the outer loop. */
static struct single_value attention_weight(struct single *single, const struct single_node *node)
{
    const struct model_config *c = single->context->config;
    const int64_t rows = single_spec(single, node->weight).dim[0], width = single_slot(single, node->in[0])->cols,
        q = c->H * c->A;
    struct gathered all = gathered_new(single, rows, width);
    const struct tensor before = single_new(single, rows, width);
    const int used = single->memory.used;
    for (int64_t i = 0; i < c->H / c->K; i++) {
        for (struct single_tiles t = single_tiles_weight(single, node);
             single_going(single) && single_next_tile(single, &t);)
            gather_tile(single, node, i, &all), single_release(single, used);
        single_take_all(single);
        for (int64_t k = 0; k < c->K && c->K < c->H && single_going(single); k++)
            store_head(single, &all, numbers(before), heads_of(c, k * (c->H / c->K) + i));
    }
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = attention_finish(single, &all,
                                                   single->context->all.S * (c->H / c->K) * single->context->all.B);
    /* Ranks along dp and microbatches store parts of this gradient. */
    for (int64_t i = 0; single_going(single) && i < tensor_count(v.y); i++) {
        const double off = unit_off_parts(single, numbers(all.absolute)[i]);
        numbers(v.fused)[i] += off, numbers(v.steps)[i] += off;
    }
    return attention_part_of(single, v, 0, rows, q);
}

/* The gradients of sinks [H]: the sum over rows of -p d, where p is the sink's probability.  `all` and `square`
 * have absolute and squared terms. */
struct sinks { struct single_value v; struct tensor all, square; };

/* Add the rows of one head to the gradient of its sink. */
static void add_sink(const struct single *single, const struct rows *rows, struct tensor y, struct tensor dy, int64_t h,
                     const struct sinks *to, double *scratch, int64_t room)
{
    const struct model_config *c = single->context->config;
    double *const off[WAYS] = { [FUSED] = numbers(to->v.fused) + h, [STEPS] = numbers(to->v.steps) + h };
    for (int64_t n = 0; n < rows->tokens; n++) {
        struct query q = query_of(single, rows, n, h, scratch, room);
        double common[WAYS];
        slopes(single, rows, &q, numbers(dy) + (n * c->H + h) * c->A, numbers(y) + (n * c->H + h) * c->A, common);
        const double term = q.sink * q.d;
        numbers(to->v.y)[h] -= term, numbers(to->all)[h] += fabs(term), numbers(to->square)[h] += term * term;
        for (int way = 0; way < WAYS; way++)
            *off[way] += q.sink * q.off_d[way] + (q.off_sink[way] + q.mean_off[way] + 4 * single->rounding.sum)
                * fabs(term);
    }
}

/* The gradient of all sinks is added up tile after tile. */
static struct single_value sink_weight(struct single *single, const struct single_node *node)
{
    const int64_t H = single->context->config->H;
    const struct sinks sums = { single_value_new(single, 1, H), single_new(single, 1, H), single_new(single, 1, H) };
    const int used = single->memory.used;
    /* Each tile adds its queries to the sums of all H heads. */
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct rows r = rows_new(single, node);
        const struct tensor dY = single_grad(single, node->out), O = single_act(single, node->out),
                            scratch = single_going(single) ? query_scratch(single, &r, 1) : tensor_none;
        for (int64_t h = 0; h < H && single_going(single); h++)
            add_sink(single, &r, O, dY, h, &sums, numbers(scratch), tensor_cols(scratch));
        single_release(single, used);
    }
    single_take_all(single);
    /* The sums are complete only here, so that their roundings are bounded once. */
    for (int64_t h = 0; h < H && single_going(single); h++) {
        const double all = numbers(sums.all)[h], sum = rounding_of_sum(single->rounding.sum, single->cursor.N) * all,
                     stored = rounding_of_terms(single->rounding.store, all, sqrt(numbers(sums.square)[h]));
        const double fused = sum + tiny_terms(single->rounding.sum_tiny, single->cursor.N) +
                             unit_off_parts(single, all);
        numbers(sums.v.fused)[h] += fused;
        numbers(sums.v.steps)[h] += fused + 3 * (stored + tiny_terms(single->rounding.tiny, single->cursor.N));
    }
    return single_going(single) ? sums.v : single_stop(single);
}

const struct single_operation single_sink_attention = {
    .words = "attention with sinks",
    .forward = recompute_attention_forward,
    .input_words = "the backward pass of attention",
    .input = { recompute_attention_input },
    .weight_words = "the backward pass of attention for its sinks",
    .weight = sink_weight,
};

const struct single_operation single_attention = {
    .words = "attention",
    .forward = recompute_attention_forward,
    .input_words = "the backward pass of attention",
    .input = { recompute_attention_input },
};

const struct single_operation single_prefixed_attention = {
    .words = "attention to prefixes and tokens",
    .forward = recompute_attention_forward,
    .input_words = "the backward pass of attention",
    .input = { recompute_attention_input },
    .weight_words = "the backward pass of attention for its prefixes",
    .weight = attention_weight,
};
