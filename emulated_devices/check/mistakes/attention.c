/* attention.c -- what attention gives with one mistake: a plain program with a parameter for each.  Without
 * dropout.
 * mistakes.c reads the table at the end.  Every row sets some switches, and forward_with or attention_input computes
 * attention [N, H V] with these switches, in fp64.  A model that cannot have the mistake gives tensor_none. */
#include "ref/model/transformer.h"
#include "emulated_devices/check/mistakes/mistakes.h"
#include <stdio.h>
#include <string.h>

/* All switches are zero if there is no mistake. */
struct attention_switches {
    double power;                       /* scores times A to this power more than right */
    bool by_width, by_head;             /* scores divided by sqrt(D); by sqrt(A), where another number is right */
    bool unsharpened;                   /* scores without what YaRN multiplies their scale by */
    int ahead, behind;                  /* keys seen beyond the own one; the last ones only */
    bool all, no_window;                /* every key of the sequence; of those before */
    bool whole;                         /* packed documents of a sequence see each other */
    bool zeroed;                        /* scores of keys that are not seen are 0, not minus infinity */
    int wider;                          /* the model's window and so many tokens */
    bool windowed;                      /* the window of other layers, where this one has none */
    bool undivided, by_query;           /* softmax without its sum; over queries */
    bool modulo;                        /* head h has the keys of head h mod K */
    bool modulo_of_rank;                /* the same among the heads of each rank along tp */
    bool own_keys, own_values;          /* but keys, or values, are right */
    const int *groups;                  /* [H] of which group a head has keys and values; NULL: its own */
    bool first_group;                   /* every head has the first keys and values of its rank */
    bool sink;                          /* softmax with a 1 in its sum: a logit of 0 without a value */
    bool no_first;                      /* the first token is not seen but by itself */
    int prefix;                         /* so many first tokens see each other */
    bool alibi;                         /* scores fall with the distance, by 2^(-8 (h + 1) / H) in head h */
    int chunk;                          /* only tokens of the same so many are seen */
    double times;                       /* scores, in addition; 0: not */
    bool scaled_twice, query_unscaled;  /* backward: all scores' gradients; those of queries */
    int values;                         /* head h has the values of so many groups further */
    bool no_mean, no_scale, last_only;  /* backward: softmax taken for exp; scores; the group's last head only */
    bool no_cap, no_slope;              /* scores are not capped; backward: as if they were not */
    double clamp;                       /* scores beyond plus or minus this are this; 0: none are */
    int scores_bits, bits;              /* scores, and probabilities, are rounded to so many bits; 0: they are not */
    int stale;                          /* keys and values of the sequence so many before */
    bool padded;                        /* tokens without a label are not seen by others, as if they were padding */
};

#define WITH(...) .with = &(const struct attention_switches){ __VA_ARGS__ }

/* Columns of the fused tensor [N, qkv_width]: where a head's query, key and value begin.  row: the sequence's first. */
struct heads { int64_t width, query, key, value, row; };

/* This is the key/value group that query head h reads, with the mistake.  Right is h / (H / K). */
static int64_t attention_group_of(const struct single *single, const struct attention_switches *switches, int64_t h)
{
    /* Ranks along tp have whole groups, so mistakes of a rank count groups and heads inside the rank. */
    const struct model_config *c = single->context->config;
    const int64_t parts = c->K % single->rounding.parts == 0 ? single->rounding.parts : 1, K = c->K / parts,
        H = c->H / parts,
                  rank = h / H;
    if (switches->groups) return switches->groups[h];
    if (switches->modulo) return h % c->K;
    if (switches->modulo_of_rank) return rank * K + h % H % K;
    return switches->first_group ? rank * K : h / (c->H / c->K);
}

/* Keys and values may be wrong apart: with own_keys only values are, with own_values only keys. */
static struct heads heads_of(const struct single *single, const struct attention_switches *switches, int64_t row,
                             int64_t h)
{
    const struct model_config *c = single->context->config;
    const int64_t right = h / (c->H / c->K), wrong = attention_group_of(single, switches, h), k = switches->own_keys
        ? right : wrong,
                  v = switches->own_values ? right : (wrong + switches->values + c->K) % c->K;
    /* Stale keys and values lie in the rows of an earlier sequence; the first sequences have none before them. */
    const int64_t back = switches->stale * single->cursor.batch.S, stale = back <= row ? back * qkv_width(c) : 0;
    return (struct heads){ qkv_width(c), h * c->A, (c->H + k) * c->A - stale, (c->H + c->K + v) * c->A - stale, row };
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Whether the token at s sees the token at t.  The causal mask and the model's window apply, changed by the
 * switches.  window: 0 if there is none; first: where the document of s begins. */
static bool sees(const struct attention_switches *switches, int64_t window, int64_t first, int64_t s, int64_t t)
{
    if (t < first && !switches->whole) return false;
    const int64_t last = switches->behind > 0 ? switches->behind : switches->no_window ? 0 : window;
    if (switches->all || (s < switches->prefix && t < switches->prefix)) return true;
    if (switches->no_first && t == 0 && s > 0) return false;
    if (switches->chunk > 0 && s / switches->chunk != t / switches->chunk) return false;
    /* With ahead = -1 the first token would see nothing; every program lets it see itself. */
    if (switches->ahead < 0 && s == 0) return t == 0;
    return t <= s + switches->ahead && (last == 0 || t > s - last);
}

/* Whether the token at t of the sequence that begins at this row has no label, and is hidden by the mistake. */
static bool attention_is_padding(const struct single *single, const struct attention_switches *switches, int64_t row,
                                 int64_t s, int64_t t)
{
    return switches->padded && t != s && single->cursor.batch.labels[row + t] < 0;
}

/* The scale of scores, without YaRN's factor, is the inverse root of this width. */
static double score_width(const struct model_config *config)
{
    return config->score_width > 0 ? config->score_width : (double)config->A;
}
/* This is the scale of scores without YaRN's factor. */
static double plain_scale(const struct model_config *config) { return 1 / sqrt(score_width(config)); }

/* This is the factor of scores: 1 / sqrt(A), the model's own number, or the mistaken factor. */
static double attention_scale_of(const struct model_config *config, const struct attention_switches *switches)
{
    if (switches->by_width || switches->by_head) return 1 / sqrt((double)(switches->by_width ? config->D : config->A));
    return (switches->unsharpened ? plain_scale(config) : attention_scale(config)) * pow(score_width(config),
                                                                                         switches->power);
}

/* Whether a model may have this mistake.  Mistakes of the cap need a cap; "by_head" needs a model whose score width
 * is not A. */
static bool may_have(const struct model_config *config, const struct attention_switches *switches)
{
    if (switches->no_cap || switches->no_slope) return config->score_cap > 0;
    return !switches->by_head || config->score_width > 0;
}

/* The slope of the cap at a query's and key's score is 1 - tanh^2(s / cap). */
static double slope_of(const struct model_config *config, const struct attention_switches *switches,
                       const double *query, const double *key)
{
    if (config->score_cap == 0 || switches->no_cap || switches->no_slope) return 1;
    const double T = tanh(attention_scale_of(config, switches) * dot(query, key, config->A) / config->score_cap);
    return 1 - T * T;
}

/* Clamp or round a score, if the mistake does. */
static double mistaken_score(const struct attention_switches *switches, double score)
{
    if (switches->clamp > 0) return fmax(-switches->clamp, fmin(switches->clamp, score));
    return switches->scores_bits > 0 ? kept_in_bits(score, switches->scores_bits) : score;
}

/* P [S, S] = softmax(scale Q K^T) of one head of one sequence, with the mistakes.  Row q has the weights with which
 * query q reads the values.  row: where the sequence begins. */
static void probabilities(const struct single *single, const struct attention_switches *switches, int64_t window,
                          int64_t row, const double *qkv, struct heads at, double *P)
{
    const struct model_config *c = single->context->config;
    const int64_t S = single->cursor.batch.S;
    const double scale = attention_scale_of(c, switches) * (switches->times > 0 ? switches->times : 1),
        cap = switches->no_cap ? 0 : c->score_cap;
    /* Each row has scores, then their maximum, then exponentials and their sum. */
    for (int64_t q = 0; q < S; q++) {
        double top = -INFINITY, sum = 0;
        for (int64_t t = 0; t < S; t++) {
            /* A hidden key has the score minus infinity, and exp gives 0. */
            P[q * S + t] = sees(switches, window, q - single_position(single, row + q), q, t)
                                   && !attention_is_padding(single, switches, at.row, q, t)
                               ? mistaken_score(switches, scale * dot(qkv + q * at.width + at.query,
                                                                      qkv + t * at.width + at.key, c->A))
                               : switches->zeroed ? 0 : -INFINITY;
            /* ALiBi subtracts slope (q - t); head h has the slope 2^(-8 (h + 1) / H). */
            if (switches->alibi) P[q * S + t] -= exp2(-8 * (double)(at.query / c->A + 1) / (double)c->H)
                * (double)(q - t);
            if (cap > 0) P[q * S + t] = isinf(P[q * S + t]) ? P[q * S + t] : cap * tanh(P[q * S + t] / cap);
            top = fmax(top, P[q * S + t]);
        }
        for (int64_t t = 0; t < S; t++) sum += P[q * S + t] = exp(P[q * S + t] - top);
        if (switches->sink) sum += exp(-top);
        for (int64_t t = 0; t < S; t++) P[q * S + t] /= switches->undivided ? 1 : sum;
        for (int64_t t = 0; t < S && switches->bits > 0; t++) P[q * S + t] = kept_in_bits(P[q * S + t], switches->bits);
    }
    /* The mistake: columns are divided by their sums, so that a key's weights add up to 1. */
    for (int64_t t = 0; t < S && switches->by_query; t++) {
        double sum = 0;
        for (int64_t q = 0; q < S; q++) sum += P[q * S + t];
        for (int64_t q = 0; q < S; q++) P[q * S + t] /= sum;
    }
}

/* This is the window of the node's layer, or the mistaken window.  `windowed` takes the widest window of any layer,
 * where the node's own layer has none. */
static int64_t window_of(const struct model_config *config, const struct single_node *node,
                         const struct attention_switches *switches)
{
    const int64_t own = model_window(config, node->layer);
    int64_t others = 0;
    for (int64_t l = 0; l < config->L; l++)
        others = model_window(config, l) > others ? model_window(config, l) : others;
    return switches->wider && own > 0 ? own + switches->wider : switches->windowed && own == 0 ? others : own;
}

/* Whether the mistake changes nothing in this model, or cannot be computed: with dropout no mask is applied here. */
static bool attention_cannot(const struct single *single, const struct single_node *node,
                             const struct attention_switches *switches)
{
    const struct model_config *config = single->context->config;
    if (switches->whole && !switches->all && single->cursor.batch.positions == NULL) return true;
    if (switches->stale >= single->cursor.batch.B) return true;
    if ((switches->wider || switches->windowed)
        && window_of(config, node, switches) == model_window(config, node->layer)) return true;
    return ((switches->values || switches->first_group) && config->K == 1) || node->rate > 0 ||
           (switches->unsharpened && attention_scale(config) == plain_scale(config)) || !may_have(config, switches);
}

/* Y [N, H V]: for each sequence and head Y += P [S, S] V [S, A].  single_new gives zeros, so rows add up. */
static struct tensor forward_with(struct single *single, const struct single_node *node,
                                  const struct attention_switches *switches)
{
    const struct model_config *c = single->context->config;
    const struct tensor X = single_act(single, node->in[0]);
    const int64_t S = single->cursor.batch.S, V = value_width(c), ld = c->H * V;
    if (!single_going(single) || attention_cannot(single, node, switches)) return tensor_none;
    const struct tensor Y = single_new(single, tensor_rows(X), ld), P = single_new(single, S, S);
    for (int64_t row = 0; !single->failed && row < tensor_rows(X); row += S)
        for (int64_t h = 0; h < c->H; h++) {
            const struct heads at = heads_of(single, switches, row, h);
            const double *qkv = numbers(X) + row * at.width;
            probabilities(single, switches, window_of(c, node, switches), row, qkv, at, numbers(P));
            /* Row q of Y adds up P[q, t] times the values of key t. */
            for (int64_t i = 0; i < S * S; i++)
                for (int64_t a = 0; a < V; a++)
                    numbers(Y)[(row + i / S) * ld + h * V + a] +=
                        numbers(P)[i] * qkv[i % S * at.width + at.value + a];
        }
    return Y;
}

/* All rows of the forward pass are made by this function. */
static struct tensor mistakes_attention_attention_forward(struct single *single, const struct single_node *node,
                                                          const struct single_mistake *mistake)
{
    return forward_with(single, node, mistake->with);
}

/* Add what query q and key t give to dX: dQ += slope K, dK += slope Q, dV += p dY.  slope is already the gradient
 * of the score. */
static void mistakes_attention_spread(const struct model_config *config, double *dx, const double *qkv,
                                      const double *dy, struct heads at,
                                      int64_t q, int64_t t, double p, double of_query, double slope)
{
    for (int64_t a = 0; a < config->A; a++) {
        dx[q * at.width + at.query + a] += of_query * slope * qkv[t * at.width + at.key + a];
        dx[t * at.width + at.key + a] += slope * qkv[q * at.width + at.query + a];
    }
    for (int64_t a = 0; a < value_width(config); a++) dx[t * at.width + at.value + a] += p * dy[a];
}

/* The mistake last_only: before the group's last head is added, what the heads before it gave the keys is set to
 * 0. */
static void forget_keys(const struct single *single, double *dx, struct heads at)
{
    for (int64_t t = 0; t < single->cursor.batch.S; t++)
        for (int64_t a = 0; a < single->context->config->A; a++) dx[t * at.width + at.key + a] = 0;
}

/* The scale of scores in the backward pass: once, twice or not at all. */
static double scale_back(const struct model_config *config, const struct attention_switches *switches)
{
    const double scale = attention_scale_of(config, switches) * (switches->times > 0 ? switches->times : 1);
    return switches->no_scale ? 1 : switches->scaled_twice ? scale * scale : scale;
}

/* dX of one head of one sequence: dS = P (dY V^T - mean), where the mean is the sum of P dY V^T over the keys. */
static void head_backward(const struct single *single, const struct attention_switches *switches,
                          int64_t window, int64_t row, double *dx, const double *qkv, const double *dy,
                          struct heads at, double *P)
{
    const struct model_config *c = single->context->config;
    const int64_t S = single->cursor.batch.S, V = value_width(c), ld = c->H * V;
    const double scale = scale_back(c, switches), of_query = switches->query_unscaled ? 1 / scale : 1;
    probabilities(single, switches, window, row, qkv, at, P);
    for (int64_t q = 0; q < S; q++) {
        double mean = 0;
        /* Without the mean softmax is taken for exp. */
        for (int64_t t = 0; t < S && !switches->no_mean; t++)
            mean += P[q * S + t] * dot(dy + q * ld, qkv + t * at.width + at.value, V);
        /* The gradient of score (q, t) goes on to the query, the key and the value. */
        for (int64_t t = 0; t < S; t++) {
            const double p = P[q * S + t];
            mistakes_attention_spread(c, dx, qkv, dy + q * ld, at, q, t, p, of_query,
                                      scale * p * (dot(dy + q * ld, qkv + t * at.width + at.value, V) - mean) *
                       slope_of(c, switches, qkv + q * at.width + at.query, qkv + t * at.width + at.key));
        }
    }
}

/* Compute dX [N, qkv_width] of all sequences and heads.  Heads of one group add to the same keys and values. */
static struct tensor attention_input(struct single *single, const struct single_node *node,
                                     const struct single_mistake *mistake)
{
    const struct model_config *c = single->context->config;
    const struct attention_switches *x = mistake->with;
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
    const int64_t S = single->cursor.batch.S, group = c->H / c->K;
    if (!single_going(single) || (x->last_only && group == 1) || attention_cannot(single, node, x)) return tensor_none;
    const struct tensor dX = single_new(single, tensor_rows(X), tensor_cols(X)), P = single_new(single, S, S);
    /* A sequence begins every S rows; each head adds dQ, and its group's dK and dV. */
    for (int64_t row = 0; !single->failed && row < tensor_rows(X); row += S)
        for (int64_t h = 0; h < c->H; h++) {
            const struct heads at = heads_of(single, x, row, h);
            double *dx = numbers(dX) + row * at.width;
            if (x->last_only && h % group == group - 1) forget_keys(single, dx, at);
            head_backward(single, x, window_of(c, node, x), row, dx, numbers(X) + row * at.width,
                          numbers(dY) + (row * c->H + h) * value_width(c), at, numbers(P));
        }
    return dX;
}

/* ---- a number that is looked for, in one head of one sequence ---------------------------------------------------- */

/* This is the squared distance of a head's rows in one sequence from the program's, with a mistake.  P [S, S] is to
 * work in. */
static double off_in_head(const struct suspect *suspect, const struct single_node *node,
                          const struct attention_switches *switches,
                          const double *qkv, int64_t row, int64_t h, double *P)
{
    const struct single *s = suspect->s;
    const int64_t S = s->cursor.batch.S, V = value_width(s->context->config), ld = s->context->config->H * V;
    const struct heads at = heads_of(s, switches, row, h);
    double off = 0;
    probabilities(s, switches, window_of(s->context->config, node, switches), row, qkv + row * at.width, at, P);
    for (int64_t q = 0; q < S; q++)
        for (int64_t a = 0; a < V; a++) {
            /* y becomes what the mistake gives, less what the program has. */
            double y = -suspect->have[(row + q) * ld + h * V + a];
            for (int64_t t = 0; t < S; t++) y += P[q * S + t] * qkv[(row + t) * at.width + at.value + a];
            off += y * y;
        }
    return off;
}

/* Find the head and the sequence that are furthest from what is right: a mistake is clearest there. */
static void find_head(const struct suspect *suspect, int64_t *row, int64_t *head)
{
    const struct single *s = suspect->s;
    const int64_t S = s->cursor.batch.S, V = value_width(s->context->config), H = s->context->config->H;
    double most = -1;
    /* The distance is the sum of squares over the S rows and V columns of a head. */
    for (int64_t first = 0; first < suspect->rows; first += S)
        for (int64_t h = 0; h < H; h++) {
            double off = 0;
            for (int64_t i = 0; i < S * V; i++) {
                const int64_t at = (first + i / V) * H * V + h * V + i % V;
                off += (suspect->have[at] - suspect->want[at]) * (suspect->have[at] - suspect->want[at]);
            }
            if (off > most) most = off, *row = first, *head = h;
        }
}

/* Make the result with these switches and offer it.  The format has one number. */
static void offer(struct suspect *suspect, const struct single_node *node,
                  const struct attention_switches *switches, double *y, const char *format, double number)
{
    const struct tensor Y = forward_with(suspect->s, node, switches);
    if (suspect->s->failed || !tensor_present(Y)) return;
    for (int64_t i = 0; i < suspect->count; i++) y[i] = numbers(Y)[i];
    if (switches->times > 0 || switches->clamp > 0) suspect_measured(suspect, y, format, number);
    else suspect_explained(suspect, y, format, number);
}

enum { MOST_HEADS = 64 };

/* For each head find the group whose keys and values give the head's rows.  A single sequence decides: the one that
 * is furthest from what is right. */
static void try_groups(struct suspect *suspect, const struct single_node *node, const double *qkv,
                       int64_t row, double *P, double *y)
{
    const struct single *s = suspect->s;
    const struct model_config *c = s->context->config;
    int groups[MOST_HEADS] = { 0 }, tried[MOST_HEADS] = { 0 };
    char words[SINGLE_MISTAKE] = "wrong head map: heads have the keys and values of groups";
    if (c->K < 2 || c->H > MOST_HEADS) return;
    for (int64_t h = 0; h < c->H; h++) {
        double off = INFINITY;
        /* A head may take the keys of any of the K groups. */
        for (int k = 0; k < c->K; k++) {
            /* tried[h] changes with k, the other heads' entries are not read. */
            tried[h] = k;
            const double here = off_in_head(suspect, node, &(struct attention_switches){ .groups = tried },
                                            qkv, row, h, P);
            if (here < off) off = here, groups[h] = k;
        }
        const size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, " %d", groups[h]);
    }
    /* All heads together must explain the whole result, not only this sequence. */
    const struct tensor Y = forward_with(suspect->s, node, &(struct attention_switches){ .groups = groups });
    for (int64_t i = 0; tensor_present(Y) && i < suspect->count; i++) y[i] = numbers(Y)[i];
    if (tensor_present(Y)) suspect_explained(suspect, y, "%s", words);
}

/* A search in some heads: what is nearest so far.  P [S, S] is to work in. */
enum { MOST_SEARCHED = 8 };
struct search {
    const struct suspect *suspect;
    const struct single_node *node;
    const double *qkv;
    struct place { int64_t row, head; } place[MOST_SEARCHED];   /* a sequence's first row, and a head */
    int places;
    double *P;
    struct attention_switches best;
    double off;
};

/* Search in heads of several sequences, too: where all scores of a head are clamped, any clamp gives the same. */
static void search_further(struct search *search)
{
    const struct single *s = search->suspect->s;
    const int64_t S = s->cursor.batch.S, H = s->context->config->H, all = search->suspect->rows / S * H;
    for (int64_t i = 0; i < MOST_SEARCHED - 1 && i < all; i++) {
        const int64_t at = i * all / (all < MOST_SEARCHED - 1 ? all : MOST_SEARCHED - 1);
        search->place[search->places++] = (struct place){ at / H * S, at % H };
    }
}

/* @return whether these switches are the nearest so far. */
static bool search_takes(struct search *search, struct attention_switches switches)
{
    double here = 0;
    for (int i = 0; i < search->places && here < search->off; i++)
        here += off_in_head(search->suspect, search->node, &switches, search->qkv, search->place[i].row,
                            search->place[i].head, search->P);
    if (!(here < search->off)) return false;
    search->off = here, search->best = switches;
    return true;
}

/* Try windows and chunks of every length, and prefixes: the first w tokens see each other. */
static void search_masks(struct search *search, int64_t S)
{
    for (int w = 1; w < S; w++) {
        search_takes(search, (struct attention_switches){ .behind = w });
        search_takes(search, (struct attention_switches){ .chunk = w });
        if (w > 1) search_takes(search, (struct attention_switches){ .prefix = w });
    }
}

/* Try a number of scores on a logarithmic scale: 64 steps, then eight times finer around the nearest.  The search has
 * its own nearest: at first it may be behind what other mistakes give. */
static void search_number(struct search *search, bool clamps)
{
    const double least = 0.02, most = 50;       /* 1 / sqrt(2500), and its inverse */
    struct search own = *search;
    double from = log(least), to = log(most), at = 0;
    own.off = INFINITY;
    if (clamps) search_further(&own);
    for (double step = (to - from) / 64; step > 1e-9; step /= 8) {
        for (double c = from; c <= to; c += step)
            if (search_takes(&own, clamps ? (struct attention_switches){ .clamp = exp(c) }
                                          : (struct attention_switches){ .times = exp(c) })) at = c;
        from = at - step, to = at + step;
    }
    /* The sum over more heads is larger; where it is smaller all the same, the other mistakes are far off. */
    if (own.off < search->off) *search = own;
}

/* Offer the nearest of the searched mistakes, first with a round number: numbers in programs are round. */
static void search_offer(const struct search *search, struct suspect *suspect, double *y)
{
    const struct attention_switches *best = &search->best;
    struct attention_switches x = *best;
    if (best->times > 0 || best->clamp > 0) {
        x.times = round(best->times * 100) / 100, x.clamp = round(best->clamp * 100) / 100;
        offer(suspect, search->node, &x, y, x.times > 0 ? "scores are %.4g times what they must be"
                                                        : "scores are clamped to plus and minus %.4g",
              x.times > 0 ? x.times : x.clamp);
        if (suspect->words[0]) return;
    }
    offer(suspect, search->node, best, y,
          best->times > 0    ? "scores are %.4f times what they must be"
          : best->clamp > 0  ? "scores are clamped to plus and minus %.4f"
          : best->prefix > 0 ? "a prefix: the first %.0f tokens see each other"
          : best->chunk > 0  ? "a token sees only its own %.0f tokens: chunks in place of a mask"
                             : "a window: a token sees the last %.0f only",
          best->times > 0 ? best->times : best->clamp > 0 ? best->clamp : best->prefix > 0 ? best->prefix
          : best->chunk > 0 ? best->chunk : best->behind);
}

/* Look for a window, chunks, a prefix, a factor or a clamp of scores: the nearest in one head wins.  Only then
 * the whole result is computed and offered. */
static void try_numbers(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass, double *y)
{
    struct single *s = suspect->s;
    enum { LONGEST = 256 };             /* tokens: beyond, a head is recomputed too often, S times for windows alone */
    const int64_t S = s->cursor.batch.S;
    const struct tensor X = single_act(s, node->in[0]), P = single_new(s, S, S);
    struct search search = { .suspect = suspect, .node = node, .places = 1, .off = INFINITY };
    /* An explanation found already is better than a number that was searched. */
    if (pass != SINGLE_FORWARD || suspect->words[0] || !single_going(s) || node->rate > 0) return;
    if (suspect->rows % S != 0 || S > LONGEST) return;
    search.qkv = numbers(X), search.P = numbers(P);
    find_head(suspect, &search.place[0].row, &search.place[0].head);
    try_groups(suspect, node, numbers(X), search.place[0].row, numbers(P), y);
    if (suspect->words[0]) return;
    search_masks(&search, S);
    search_number(&search, false);
    search_number(&search, true);
    search_offer(&search, suspect, y);
}

static const struct single_mistake attention_rows[] = {
    { "scores are divided by the root of the width D, not of a head's A", FORWARD | INPUT, WITH(.by_width = true) },
    { "scores are not divided by the root of A", FORWARD, WITH(.power = 0.5) },
    { "scores are divided by the root of A twice", FORWARD, WITH(.power = -0.5) },
    { "scores are not divided by the root of A", INPUT, WITH(.no_scale = true) },
    { "gradients of scores are multiplied by their scale twice", INPUT, WITH(.scaled_twice = true) },
    { "the gradient of queries is not multiplied by the scale of scores", INPUT, WITH(.query_unscaled = true) },
    { "scores are divided by the root of A only, without YaRN's mscale_all_dim", FORWARD, WITH(.unsharpened = true) },
    { "scores are divided by the root of a head's A, not of the model's own number",
      FORWARD | INPUT, WITH(.by_head = true) },
    { "scores are not capped", FORWARD | INPUT, WITH(.no_cap = true) },
    { "the gradient of scores lacks the slope of their cap", INPUT, WITH(.no_slope = true) },
    { "the mask is off by one: a token does not see itself", FORWARD | INPUT, WITH(.ahead = -1) },
    { "the mask is off by one: a token sees the next one", FORWARD | INPUT, WITH(.ahead = 1) },
    { "there is no mask: a token sees its whole sequence", FORWARD | INPUT, WITH(.all = true, .whole = true) },
    { "packed documents see each other: a token sees all before it in its sequence",
      FORWARD | INPUT, WITH(.whole = true) },
    { "the mask makes scores 0, not minus infinity", FORWARD, WITH(.zeroed = true) },
    { "its window is off by one: a token sees one more", FORWARD | INPUT, WITH(.wider = 1) },
    { "its window is off by one: a token sees one less", FORWARD | INPUT, WITH(.wider = -1) },
    { "it has the window of other layers, and should have none", FORWARD | INPUT, WITH(.windowed = true) },
    { "there is no window: a token sees all before it", FORWARD | INPUT, WITH(.no_window = true) },
    { "a window: a token sees the last 2 only", FORWARD, WITH(.behind = 2) },
    { "a window: a token sees the last 3 only", FORWARD, WITH(.behind = 3) },
    { "a window: a token sees the last 4 only", FORWARD, WITH(.behind = 4) },
    { "a window: a token sees the last 8 only", FORWARD, WITH(.behind = 8) },
    { "exponentials are not divided by their sum", FORWARD, WITH(.undivided = true) },
    { "softmax over queries, not keys", FORWARD | INPUT, WITH(.by_query = true) },
    { "softmax is taken for exp: the mean is not subtracted", INPUT, WITH(.no_mean = true) },
    { "wrong head map: head h has the keys and values of group h mod K", FORWARD | INPUT, WITH(.modulo = true) },
    { "wrong head map: in each rank head h has the keys and values of group h mod its groups",
      FORWARD, WITH(.modulo_of_rank = true) },
    { "wrong head map: head h has the keys of group h mod K; values are right",
      FORWARD, WITH(.modulo = true, .own_values = true) },
    { "wrong head map: head h has the values of group h mod K; keys are right",
      FORWARD, WITH(.modulo = true, .own_keys = true) },
    { "wrong head map: in each rank head h has the keys of group h mod its groups",
      FORWARD, WITH(.modulo_of_rank = true, .own_values = true) },
    { "wrong head map: in each rank head h has the values of group h mod its groups",
      FORWARD, WITH(.modulo_of_rank = true, .own_keys = true) },
    { "wrong head map: all heads of a rank have the keys and values of its first group",
      FORWARD, WITH(.first_group = true) },
    { "softmax has a 1 more in its sum", FORWARD | INPUT, WITH(.sink = true) },
    { "the mask hides the first token", FORWARD | INPUT, WITH(.no_first = true) },
    { "ALiBi: scores fall with the distance of tokens", FORWARD | INPUT, WITH(.alibi = true) },
    { "wrong head map: heads have the values of the next group", FORWARD | INPUT, WITH(.values = 1) },
    { "wrong head map: heads have the values of the group before", FORWARD | INPUT, WITH(.values = -1) },
    { "probabilities are rounded to bf16", FORWARD | INPUT, WITH(.bits = 8) },
    { "probabilities are rounded to fp16 or tf32", FORWARD | INPUT, WITH(.bits = 11) },
    { "scores are rounded to bf16", FORWARD | INPUT, WITH(.scores_bits = 8) },
    { "scores are rounded to fp16 or tf32", FORWARD | INPUT, WITH(.scores_bits = 11) },
    { "stale: keys and values are those of the sequence before", FORWARD, WITH(.stale = 1) },
    { "stale: keys and values are those of two sequences before", FORWARD, WITH(.stale = 2) },
    { "stale: keys and values are those of four sequences before", FORWARD, WITH(.stale = 4) },
    { "tokens without a label are hidden, as if they were padding", FORWARD | INPUT, WITH(.padded = true) },
    { "keys get the gradient of the last query head of their group only", INPUT, WITH(.last_only = true) },
    { 0 }
};

const struct single_mistakes single_attention_mistakes = {
    .of = &single_attention, .rows = attention_rows, .make[SINGLE_FORWARD] = mistakes_attention_attention_forward,
    .make[SINGLE_INPUT] = attention_input,
    .parts = try_numbers
};
