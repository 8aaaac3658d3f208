/* mistakes_attention.c -- what attention gives with one mistake: a plain program with a parameter for each.  Without
 * dropout. */
#include "ref/model/transformer.h"
#include "ref/single/mistakes.h"
#include <stdlib.h>

/* All zero: no mistake. */
struct variant {
    double power;                       /* scores times A to this power more than right */
    bool by_width, by_head;             /* scores divided by sqrt(D); by sqrt(A), where another number is right */
    bool unsharpened;                   /* scores without what YaRN multiplies their scale by */
    int ahead, behind;                  /* keys seen beyond the own one; the last ones only */
    bool all, no_window;                /* every key of the sequence; of those before */
    bool zeroed;                        /* scores of keys that are not seen are 0, not minus infinity */
    int wider;                          /* the model's window and so many tokens */
    bool windowed;                      /* the window of other layers, where this one has none */
    bool undivided, by_query;           /* softmax without its sum; over queries */
    bool modulo;                        /* head h has the keys of head h mod K */
    int values;                         /* head h has the values of so many groups further */
    bool no_mean, no_scale, last_only;  /* backward: softmax taken for exp; scores; the group's last head only */
    bool no_cap, no_slope;              /* scores are not capped; backward: as if they were not */
};

static const struct variant variants[] = {
    { .by_width = true }, { .power = 0.5 },      { .power = -0.5 },    { .ahead = -1 },       { .ahead = 1 },
    { .all = true },      { .undivided = true }, { .by_query = true }, { .modulo = true },    { .values = 1 },
    { .values = -1 },     { .no_mean = true },   { .no_scale = true }, { .last_only = true }, { .behind = 2 },
    { .behind = 3 },      { .behind = 4 },       { .behind = 8 },      { .no_window = true }, { .by_head = true },
    { .no_cap = true },   { .no_slope = true },  { .unsharpened = true },
    { .wider = 1 },       { .wider = -1 },     { .windowed = true },
    { .zeroed = true },
};
enum { BY_WIDTH, UNSCALED, TWICE_SCALED, NOT_ITSELF, NEXT, ALL, UNDIVIDED, BY_QUERY, MODULO, VALUES_NEXT, VALUES_BEFORE,
       NO_MEAN, NO_SCALE, LAST_ONLY, LAST_2, LAST_3, LAST_4, LAST_8, NO_WINDOW, BY_HEAD,
       NO_CAP, NO_SLOPE, UNSHARPENED, WIDER, NARROWER, WINDOWED, ZEROED };

struct heads { int64_t width, query, key, value; };

static struct heads heads_of(const struct model_config *c, const struct variant *x, int64_t h)
{
    const int64_t k = x->modulo ? h % c->K : h / (c->H / c->K), v = (k + x->values + c->K) % c->K;
    return (struct heads){ qkv_width(c), h * c->A, (c->H + k) * c->A, (c->H + c->K + v) * c->A };
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* window: the model's; 0: none. */
static bool sees(const struct variant *x, int64_t window, int64_t s, int64_t t)
{
    const int64_t last = x->behind > 0 ? x->behind : x->no_window ? 0 : window;
    if (x->all) return true;
    if (x->ahead < 0 && s == 0) return t == 0;
    return t <= s + x->ahead && (last == 0 || t > s - last);
}

/* What the scale is the inverse root of, and the scale without what YaRN multiplies it by. */
static double score_width(const struct model_config *c) { return c->score_width > 0 ? c->score_width : (double)c->A; }
static double plain_scale(const struct model_config *c) { return 1 / sqrt(score_width(c)); }

static double scale_of(const struct model_config *c, const struct variant *x)
{
    if (x->by_width || x->by_head) return 1 / sqrt((double)(x->by_width ? c->D : c->A));
    return (x->unsharpened ? plain_scale(c) : attention_scale(c)) * pow(score_width(c), x->power);
}

/* Whether a model may have this mistake: all but some may. */
static bool may_have(const struct model_config *c, const struct variant *x)
{
    if (x->no_cap || x->no_slope) return c->score_cap > 0;
    return !x->by_head || c->score_width > 0;
}

/* The slope of the cap of the score of a query and a key. */
static double slope_of(const struct model_config *c, const struct variant *x, const double *query, const double *key)
{
    if (c->score_cap == 0 || x->no_cap || x->no_slope) return 1;
    const double T = tanh(scale_of(c, x) * dot(query, key, c->A) / c->score_cap);
    return 1 - T * T;
}

/* P [S,S] of one head of one sequence. */
static void probabilities(const struct single *s, const struct variant *x, int64_t window, const double *qkv,
                          struct heads at, double *P)
{
    const struct model_config *c = s->config;
    const int64_t S = s->batch.S;
    const double scale = scale_of(c, x), cap = x->no_cap ? 0 : c->score_cap;
    for (int64_t q = 0; q < S; q++) {
        double top = -INFINITY, sum = 0;
        for (int64_t t = 0; t < S; t++) {
            P[q * S + t] = sees(x, window, q, t)
                               ? scale * dot(qkv + q * at.width + at.query, qkv + t * at.width + at.key, c->A)
                               : x->zeroed ? 0 : -INFINITY;
            if (cap > 0) P[q * S + t] = isinf(P[q * S + t]) ? P[q * S + t] : cap * tanh(P[q * S + t] / cap);
            top = fmax(top, P[q * S + t]);
        }
        for (int64_t t = 0; t < S; t++) sum += P[q * S + t] = exp(P[q * S + t] - top);
        for (int64_t t = 0; t < S; t++) P[q * S + t] /= x->undivided ? 1 : sum;
    }
    for (int64_t t = 0; t < S && x->by_query; t++) {
        double sum = 0;
        for (int64_t q = 0; q < S; q++) sum += P[q * S + t];
        for (int64_t q = 0; q < S; q++) P[q * S + t] /= sum;
    }
}

static int64_t window_of(const struct model_config *c, const struct single_node *n, const struct variant *x)
{
    const int64_t own = model_window(c, n->layer);
    int64_t others = 0;
    for (int64_t l = 0; l < c->L; l++) others = model_window(c, l) > others ? model_window(c, l) : others;
    return x->wider && own > 0 ? own + x->wider : x->windowed && own == 0 ? others : own;
}

static bool cannot(const struct model_config *c, const struct single_node *n, const struct variant *x)
{
    if ((x->wider || x->windowed) && window_of(c, n, x) == model_window(c, n->layer)) return true;
    return (x->values && c->K == 1) || n->rate > 0 || (x->unsharpened && attention_scale(c) == plain_scale(c)) ||
           !may_have(c, x);
}

static struct tensor forward(struct single *s, const struct single_node *n, int which)
{
    const struct model_config *c = s->config;
    const struct variant *x = &variants[which];
    const struct tensor X = single_act(s, n->in[0]);
    const int64_t S = s->batch.S, V = value_width(c), ld = c->H * V;
    if (!single_going(s) || cannot(c, n, x)) return tensor_none;
    const struct tensor Y = single_new(s, tensor_rows(X), ld), P = single_new(s, S, S);
    for (int64_t row = 0; !s->failed && row < tensor_rows(X); row += S)
        for (int64_t h = 0; h < c->H; h++) {
            const struct heads at = heads_of(c, x, h);
            const double *qkv = numbers(X) + row * at.width;
            probabilities(s, x, window_of(c, n, x), qkv, at, numbers(P));
            for (int64_t i = 0; i < S * S; i++)
                for (int64_t a = 0; a < V; a++)
                    numbers(Y)[(row + i / S) * ld + h * V + a] +=
                        numbers(P)[i] * qkv[i % S * at.width + at.value + a];
        }
    return Y;
}

/* What query q and key t add to the gradients. */
static void spread(const struct model_config *c, double *dx, const double *qkv, const double *dy, struct heads at,
                   int64_t q, int64_t t, double p, double slope)
{
    for (int64_t a = 0; a < c->A; a++) {
        dx[q * at.width + at.query + a] += slope * qkv[t * at.width + at.key + a];
        dx[t * at.width + at.key + a] += slope * qkv[q * at.width + at.query + a];
    }
    for (int64_t a = 0; a < value_width(c); a++) dx[t * at.width + at.value + a] += p * dy[a];
}

static void forget_keys(const struct single *s, double *dx, struct heads at)
{
    for (int64_t t = 0; t < s->batch.S; t++)
        for (int64_t a = 0; a < s->config->A; a++) dx[t * at.width + at.key + a] = 0;
}

static void head_backward(const struct single *s, const struct variant *x, int64_t window, double *dx,
                          const double *qkv, const double *dy, struct heads at, double *P)
{
    const struct model_config *c = s->config;
    const int64_t S = s->batch.S, V = value_width(c), ld = c->H * V;
    const double scale = x->no_scale ? 1 : scale_of(c, x);
    probabilities(s, x, window, qkv, at, P);
    for (int64_t q = 0; q < S; q++) {
        double mean = 0;
        for (int64_t t = 0; t < S && !x->no_mean; t++)
            mean += P[q * S + t] * dot(dy + q * ld, qkv + t * at.width + at.value, V);
        for (int64_t t = 0; t < S; t++) {
            const double p = P[q * S + t];
            spread(c, dx, qkv, dy + q * ld, at, q, t, p,
                   scale * p * (dot(dy + q * ld, qkv + t * at.width + at.value, V) - mean) *
                       slope_of(c, x, qkv + q * at.width + at.query, qkv + t * at.width + at.key));
        }
    }
}

static struct tensor input(struct single *s, const struct single_node *n, int which)
{
    const struct model_config *c = s->config;
    const struct variant *x = &variants[which];
    const struct tensor dY = single_grad(s, n->out), X = single_act(s, n->in[0]);
    const int64_t S = s->batch.S, group = c->H / c->K;
    if (!single_going(s) || (x->last_only && group == 1) || cannot(c, n, x)) return tensor_none;
    const struct tensor dX = single_new(s, tensor_rows(X), tensor_cols(X)), P = single_new(s, S, S);
    for (int64_t row = 0; !s->failed && row < tensor_rows(X); row += S)
        for (int64_t h = 0; h < c->H; h++) {
            const struct heads at = heads_of(c, x, h);
            double *dx = numbers(dX) + row * at.width;
            if (x->last_only && h % group == group - 1) forget_keys(s, dx, at);
            head_backward(s, x, window_of(c, n, x), dx, numbers(X) + row * at.width,
                          numbers(dY) + (row * c->H + h) * value_width(c), at, numbers(P));
        }
    return dX;
}

static const struct single_mistake forward_table[] = {
    { "scores are divided by the root of the width D, not of a head's A", forward, BY_WIDTH },
    { "scores are not divided by the root of A", forward, UNSCALED },
    { "scores are divided by the root of A twice", forward, TWICE_SCALED },
    { "scores are divided by the root of A only, without YaRN's mscale_all_dim", forward, UNSHARPENED },
    { "scores are divided by the root of a head's A, not of the model's own number", forward, BY_HEAD },
    { "scores are not capped", forward, NO_CAP },
    { "the mask is off by one: a token does not see itself", forward, NOT_ITSELF },
    { "the mask is off by one: a token sees the next one", forward, NEXT },
    { "there is no mask: a token sees its whole sequence", forward, ALL },
    { "the mask makes scores 0, not minus infinity", forward, ZEROED },
    { "its window is off by one: a token sees one more", forward, WIDER },
    { "its window is off by one: a token sees one less", forward, NARROWER },
    { "it has the window of other layers, and should have none", forward, WINDOWED },
    { "there is no window: a token sees all before it", forward, NO_WINDOW },
    { "a window: a token sees the last 2 only", forward, LAST_2 },
    { "a window: a token sees the last 3 only", forward, LAST_3 },
    { "a window: a token sees the last 4 only", forward, LAST_4 },
    { "a window: a token sees the last 8 only", forward, LAST_8 },
    { "exponentials are not divided by their sum", forward, UNDIVIDED },
    { "softmax over queries, not keys", forward, BY_QUERY },
    { "wrong head map: head h has the keys and values of group h mod K", forward, MODULO },
    { "wrong head map: heads have the values of the next group", forward, VALUES_NEXT },
    { "wrong head map: heads have the values of the group before", forward, VALUES_BEFORE },
    { 0 }
};

static const struct single_mistake input_table[] = {
    { "scores are not divided by the root of A", input, NO_SCALE },
    { "softmax is taken for exp: the mean is not subtracted", input, NO_MEAN },
    { "keys get the gradient of the last query head of their group only", input, LAST_ONLY },
    { "scores are divided by the root of the width D, not of a head's A", input, BY_WIDTH },
    { "scores are divided by the root of a head's A, not of the model's own number", input, BY_HEAD },
    { "scores are not capped", input, NO_CAP },
    { "the gradient of scores lacks the slope of their cap", input, NO_SLOPE },
    { "the mask is off by one: a token does not see itself", input, NOT_ITSELF },
    { "the mask is off by one: a token sees the next one", input, NEXT },
    { "there is no mask: a token sees its whole sequence", input, ALL },
    { "its window is off by one: a token sees one more", input, WIDER },
    { "its window is off by one: a token sees one less", input, NARROWER },
    { "it has the window of other layers, and should have none", input, WINDOWED },
    { "there is no window: a token sees all before it", input, NO_WINDOW },
    { "softmax over queries, not keys", input, BY_QUERY },
    { "wrong head map: head h has the keys and values of group h mod K", input, MODULO },
    { "wrong head map: heads have the values of the next group", input, VALUES_NEXT },
    { "wrong head map: heads have the values of the group before", input, VALUES_BEFORE },
    { 0 }
};

const struct single_mistakes single_attention_mistakes = { .of = &single_attention,
                                                           .forward = forward_table,
                                                           .input = input_table };
