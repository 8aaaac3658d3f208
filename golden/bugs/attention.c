/* attention.c -- causal attention with grouped heads.  X [rows,(heads+2 kv) A]: queries, keys, values. */
#include "program.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where a query's head finds its keys, among those of its rank. */
static int kv_of(const struct heads_at *of, int h)
{
    const int group = m.H / m.K;
    if (IS(HEAD_MAP)) return h % of->kv_heads;
    return (of->head + h) / group - of->head / group;
}

static float dot(const float *a, const float *b)
{
    float term[MOST_WIDE];
    for (int i = 0; i < m.A; i++) term[i] = a[i] * b[i];
    return add_up(term, m.A);
}

static float scale(void)
{
    if (IS(SCORES_BY_D)) return 1 / sqrtf((float)m.D);
    if (IS(SCORES_UNSCALED)) return 1;
    if (IS(SCORES_TWICE)) return 1 / (float)m.A;
    if (IS(SCORES_ODD)) return 1.3f / sqrtf((float)m.A);
    return 1 / sqrtf((float)m.A);
}

/* The keys that query s sees: [from, to). */
static int sees(int s)
{
    if (IS(MASK_NOT_ITSELF)) return s > 0 ? s : 1;
    if (IS(MASK_NEXT)) return s + 2 < m.S ? s + 2 : m.S;
    if (IS(MASK_NONE)) return m.S;
    if (IS(MASK_PREFIX) && s < 3) return 3;
    return s + 1;
}

static int sees_from(int s)
{
    if (IS(MASK_WINDOW_5)) return s > 4 ? s - 4 : 0;
    if (IS(MASK_NO_FIRST)) return s > 0;
    return IS(MASK_WINDOW) && s > 3 ? s - 3 : 0;
}

struct heads { int width, q, k, v, first; };     /* first: the sequence's first row in the batch */

static struct heads heads_of(const struct heads_at *of, int h)
{
    const int heads = of->heads, kv = of->kv_heads, g = kv_of(of, h), values = IS(VALUE_HEADS_SHIFTED) ? (g + 1) % kv : g;
    return (struct heads){ (heads + 2 * kv) * m.A, h * m.A, (heads + g) * m.A, (heads + kv + values) * m.A, 0 };
}

/* A score of query s and key t, before softmax. */
static float score(const float *x, struct heads at, int s, int t)
{
    const float y = between(between(dot(x + s * at.width + at.q, x + t * at.width + at.k)) * scale());
    if (IS(SCORES_CLAMPED)) return fmaxf(-1, fminf(1, y));
    return IS(SCORES_BF16) ? round_to(BF16, y) : y;
}

/* p[0..S) of query s; x: the first row of the sequence. */
static void probabilities(float *p, const float *x, struct heads at, int s)
{
    float top = -INFINITY, term[MOST_WIDE];
    for (int t = 0; t < m.S; t++) {
        const bool hidden = IS(PADDING_HIDDEN) && t != s && labels[at.first + t] < 0;
        p[t] = t >= sees_from(s) && t < sees(s) && !hidden ? score(x, at, s, t) : -INFINITY;
        if (IS(ALIBI)) p[t] -= exp2f(-8.0f * (float)(at.q / m.A + 1) / (float)m.H) * (float)(s - t);
        top = fmaxf(top, p[t]);
    }
    for (int t = 0; t < m.S; t++) p[t] = expf(p[t] - top), term[t] = p[t];
    const float total = IS(SOFTMAX_NOT_DIVIDED) ? 1 : add_up(term, m.S) + (IS(SOFTMAX_AND_ONE) ? expf(-top) : 0);
    for (int t = 0; t < m.S; t++) p[t] = stored(IS(SOFTMAX_BF16) ? round_to(BF16, p[t] / total) : p[t] / total);
}

/* The probabilities of all queries, softmax over queries instead of keys. */
static void wrong_axis(float *P)
{
    for (int t = 0; t < m.S; t++) {
        float total = 0;
        for (int s = 0; s < m.S; s++) total += P[s * m.S + t];
        for (int s = 0; s < m.S; s++) P[s * m.S + t] /= total;
    }
}

static void all_probabilities(float *P, const float *x, struct heads at)
{
    for (int s = 0; s < m.S; s++) probabilities(P + s * m.S, x, at, s);
    if (IS(SOFTMAX_AXIS)) wrong_axis(P);
}

void attention(float *Y, const float *X, const struct heads_at *of, int sequences)
{
    const int parts = set.parts, heads = of->heads;
    float *P = malloc(sizeof *P * (size_t)m.S * m.S), term[MOST_WIDE];
    set.parts = 1;
    for (int b = 0; b < sequences; b++)
        for (int h = 0; h < heads; h++) {
            struct heads at = heads_of(of, h);
            const float *x = X + b * m.S * at.width;
            at.first = (of->sequence + b) * m.S;
            if (IS(KEYS_STALE) && at.first > 0) at.k -= m.S * at.width, at.v -= m.S * at.width;
            const int to = IS(HEADS_REVERSED) ? heads - 1 - h : h;
            const enum bug was = bug;
            if (IS(MASK_NEXT_OF_HEAD)) bug = h == heads - 1 ? MASK_NEXT : NO_BUG;
            all_probabilities(P, x, at);
            bug = was;
            for (int s = 0; s < m.S; s++)
                for (int a = 0; a < m.A; a++) {
                    for (int t = 0; t < m.S; t++)
                        term[t] = P[s * m.S + t] * probability_times(of, b, h, s, t, false) * x[t * at.width + at.v + a];
                    Y[((b * m.S + s) * heads + to) * m.A + a] = stored(add_up(term, m.S));
                }
        }
    free(P), set.parts = parts;
}

/* The backward pass has its own bugs only. */
static void right_probabilities(float *P, const float *x, struct heads at)
{
    const enum bug was = bug;
    bug = NO_BUG;
    all_probabilities(P, x, at);
    bug = was;
}

/* The gradients of the scores of one head, in place of its probabilities' copy.  W [S,S]: how often each probability counts. */
static void slopes(float *dP, const float *P, const float *W, const float *x, const float *dy, const float *y, struct heads at, int ld)
{
    for (int s = 0; s < m.S; s++) {
        float mean = dot(dy + s * ld, y + s * ld);
        if (IS(SOFTMAX_BACK_NO_MEAN)) mean = 0;
        for (int t = 0; t < m.S; t++) {
            const float d = between(dot(dy + s * ld, x + t * at.width + at.v)) * W[s * m.S + t], by = IS(SCORES_BACK_UNSCALED) ? 1 : 1 / sqrtf((float)m.A);
            dP[s * m.S + t] = stored(P[s * m.S + t] * (d - mean)) * by;
            dP[s * m.S + t] = stored(dP[s * m.S + t]);
        }
    }
}

/* What one head of queries adds to dX, in fp32. */
static void head_input(float *dx, const float *x, const float *dy, const float *y, struct heads at, int ld, float *P, float *dP, const float *W)
{
    float term[MOST_WIDE];
    right_probabilities(P, x, at);
    slopes(dP, P, W, x, dy, y, at, ld);
    for (int s = 0; s < m.S; s++)
        for (int a = 0; a < m.A; a++) {
            for (int t = 0; t < m.S; t++) term[t] = dP[s * m.S + t] * x[t * at.width + at.k + a];
            dx[s * at.width + at.q + a] += between(add_up(term, m.S));
            for (int t = 0; t < m.S; t++) term[t] = dP[t * m.S + s] * x[t * at.width + at.q + a];
            dx[s * at.width + at.k + a] += between(add_up(term, m.S));
            for (int t = 0; t < m.S; t++) term[t] = P[t * m.S + s] * W[t * m.S + s] * dy[t * ld + a];
            dx[s * at.width + at.v + a] += between(add_up(term, m.S));
        }
}

void attention_input(float *dX, const float *dY, const float *Y, const float *X, const struct heads_at *of, int sequences)
{
    const int parts = set.parts, heads = of->heads, kv = of->kv_heads, ld = heads * m.A, width = (heads + 2 * kv) * m.A, SS = m.S * m.S;
    float *P = malloc(3 * sizeof *P * (size_t)SS), *W = P + 2 * SS;
    const enum bug was = bug;
    set.parts = 1;
    memset(dX, 0, sizeof *dX * (size_t)sequences * m.S * width);
    for (int b = 0; b < sequences; b++)
        for (int h = 0; h < heads; h++) {
            if (IS(HEAD_MAP) || IS(VALUE_HEADS_SHIFTED)) bug = NO_BUG;
            const struct heads at = heads_of(of, h);
            bug = was;
            const int from = b * m.S;
            for (int i = 0; i < SS; i++) W[i] = probability_times(of, b, h, i / m.S, i % m.S, true);
            if (IS(GROUP_LAST_ONLY) && h % (heads / kv) == heads / kv - 1)      /* forgets the heads before */
                for (int s = 0; s < m.S; s++) memset(dX + (from + s) * width + at.k, 0, sizeof *dX * m.A);
            head_input(dX + from * width, X + from * width, dY + from * ld + h * m.A, Y + from * ld + h * m.A, at, ld, P, P + SS, W);
        }
    for (int i = 0; i < sequences * m.S * width; i++) dX[i] = stored(dX[i]);
    free(P), set.parts = parts;
}
