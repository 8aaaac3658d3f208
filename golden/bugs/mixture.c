/* mixture.c -- what a Qwen3-MoE has in place of a Llama's: norms of heads, and a router that gives each token to k of E
 * experts.  Every rank along tp has some columns of every expert, so what its experts give is a part of a sum.
 *
 * Rows of choices are sorted by expert, then by token.
 */
#include "slots.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank's choices in a layer: for each row its token, and which of the token's choices it is. */
struct choices { int rows, first[MOST_EXPERTS + 1], token[MOST_ROWS], choice[MOST_ROWS], expert[MOST_ROWS]; };
static struct choices of[MOST_RANKS][MOST_LAYERS];

/* ---- norms of heads ---------------------------------------------------------------------------------------------- */

static float root_of(const float *x, int n)
{
    float term[MOST_WIDE];
    for (int i = 0; i < n; i++) term[i] = x[i] * x[i];
    return 1 / sqrtf(add_up(term, n) / (float)n + m.eps);
}

/* The weights of queries, then those of keys. */
static const float *weights_of(int l, bool keys)
{
    return param[param_of(l, "self_attn.qk_norm.weight")].w + (keys != IS(HEAD_NORMS_EXCHANGED) ? m.A : 0);
}

void head_norms(float *Y, const float *X, int l, int heads, int kv_heads, int rows)
{
    const int wide = (heads + 2 * kv_heads) * m.A, parts = set.parts;
    set.parts = 1;
    memcpy(Y, X, sizeof *Y * (size_t)rows * wide);
    for (int n = 0; n < rows; n++)
        for (int h = 0; h < heads + (IS(KEYS_NOT_NORMED) ? 0 : kv_heads); h++) {
            const float *x = X + n * wide + h * m.A, *w = weights_of(l, h >= heads);
            const bool key = h >= heads;
            const float r = IS(HEADS_NORMED_TOGETHER) ? root_of(X + n * wide + key * heads * m.A, (key ? kv_heads : heads) * m.A)
                                                      : root_of(x, m.A);
            for (int i = 0; i < m.A; i++) Y[n * wide + h * m.A + i] = stored(between(x[i] * r) * w[i]);
        }
    set.parts = parts;
}

/* The backward pass has its own bugs only. */
void head_norms_input(float *dX, const float *dY, const float *X, int l, int heads, int kv_heads, int rows)
{
    const int wide = (heads + 2 * kv_heads) * m.A, parts = set.parts;
    const enum bug was = bug;
    bug = NO_BUG, set.parts = 1;
    memcpy(dX, dY, sizeof *dX * (size_t)rows * wide);
    for (int n = 0; n < rows; n++)
        for (int h = 0; h < heads + kv_heads; h++) {
            const int at = n * wide + h * m.A;
            const float *x = X + at, *w = weights_of(l, h >= heads), r = root_of(x, m.A);
            float term[MOST_WIDE], g[MOST_WIDE], xhat[MOST_WIDE];
            for (int i = 0; i < m.A; i++) g[i] = between(dY[at + i] * w[i]), xhat[i] = between(x[i] * r), term[i] = g[i] * xhat[i];
            const float dot = between(add_up(term, m.A) / (float)m.A);
            for (int i = 0; i < m.A; i++) dX[at + i] = stored(r * (g[i] - xhat[i] * dot));
        }
    bug = was, set.parts = parts;
}

/* Of the heads that a rank has: dw [2 A]. */
void head_norms_weight(float *dw, const float *dY, const float *X, int heads, int kv_heads, int rows)
{
    const int wide = (heads + 2 * kv_heads) * m.A;
    float *term = malloc(sizeof *term * (size_t)rows * heads);
    for (int i = 0; i < 2 * m.A; i++) {
        int k = 0;
        for (int n = 0; n < rows; n++)
            for (int h = i < m.A ? 0 : heads; h < (i < m.A ? heads : heads + kv_heads); h++) {
                const int at = n * wide + h * m.A;
                term[k++] = dY[at + i % m.A] * between(X[at + i % m.A] * root_of(X + at, m.A));
            }
        dw[i] += add_up(term, k);
    }
    free(term);
}

/* ---- the router -------------------------------------------------------------------------------------------------- */

static void scores_of(float *p, const float *x)
{
    float top = -INFINITY, term[MOST_WIDE];
    for (int e = 0; e < m.E; e++) top = fmaxf(top, x[e]);
    for (int e = 0; e < m.E; e++) p[e] = term[e] = IS(ROUTER_SIGMOIDS) ? 1 / (1 + expf(-x[e])) : expf(x[e] - top);
    const float total = IS(ROUTER_SIGMOIDS) ? 1 : add_in_one_part(term, m.E);
    for (int e = 0; e < m.E; e++) p[e] /= total;
}

/* The largest logits first; of equal ones the first, or, if sums are made in reverse, the last. */
static void choose(const float *x, int *chosen)
{
    for (int i = 0; i < m.k; i++) {
        int best = -1;
        for (int e = 0; e < m.E; e++) {
            bool taken = false;
            for (int j = 0; j < i; j++) taken = taken || chosen[j] == e;
            if (!taken && (best < 0 || x[e] > x[best] || (set.order == REVERSED && x[e] == x[best]))) best = e;
        }
        chosen[i] = best;
    }
}

static void sort_rows(struct choices *c, const float *logits, int tokens)
{
    int chosen[MOST_EXPERTS];
    c->rows = 0;
    for (int e = 0; e < m.E; e++) {
        c->first[e] = c->rows;
        for (int n = 0; n < tokens; n++) {
            choose(logits + n * m.E, chosen);
            for (int i = 0; i < m.k; i++)
                if (chosen[i] == e) c->token[c->rows] = n, c->choice[c->rows] = i, c->expert[c->rows++] = e;
        }
    }
    c->first[m.E] = c->rows;
}

static float chosen_sum(const float *p, const int *chosen)
{
    float sum = 0;
    for (int i = 0; i < m.k; i++) sum += p[chosen[i]];
    return sum;
}

static void route(int r, int l)
{
    const float *x = A(r, l, ROUTER);
    for (int n = 0; n < rows_of(r); n++) {
        float p[MOST_EXPERTS];
        int chosen[MOST_EXPERTS];
        choose(x + n * m.E, chosen);
        float logits[MOST_EXPERTS];
        for (int e = 0; e < m.E; e++) logits[e] = x[n * m.E + e] / (IS(ROUTER_TEMPERATURE) ? 1.7f : 1);
        scores_of(p, logits);
        const float sum = IS(WEIGHTS_NOT_DIVIDED) ? 1 : chosen_sum(p, chosen);
        for (int i = 0; i < m.k; i++) A(r, l, WEIGHTS)[n * m.k + i] = stored(p[chosen[i]] / sum);
    }
    sort_rows(&of[r][l], x, rows_of(r));
}

/* A token's sequence in the batch; a mixture has no microbatches. */
static int sequence_of(int r, int n) { return rank[r].first + n / m.S; }

/* Choices of all tokens of the batch, or of a copy's (dp), or of a sequence's, in all layers; tokens times layers. */
static int count_choices(int dp, int sequence, int count[MOST_EXPERTS])
{
    int all = 0;
    memset(count, 0, sizeof(int) * MOST_EXPERTS);
    for (int l = 0; l < m.L; l++)
        RANKS {
            if (rank[r].tp > 0 || (dp >= 0 && rank[r].dp != dp)) continue;
            for (int i = 0; i < of[r][l].rows; i++) count[of[r][l].expert[i]] += sequence < 0 || sequence_of(r, of[r][l].token[i]) == sequence;
            all += rows_of(r);
        }
    return sequence < 0 ? all : m.L * m.S;
}

/* The balance loss adds this to the gradient of a score of token n. */
static float balance_slope(int r, int n, int e)
{
    int count[MOST_EXPERTS];
    const bool sequence = IS(BALANCE_OF_SEQUENCES);
    const int all = count_choices(IS(BALANCE_OF_RANK) ? rank[r].dp : -1, sequence ? sequence_of(r, n) : -1, count);
    const float by = IS(BALANCE_OF_RANK) ? 1 / (float)set.dp : IS(BALANCE_MISSING) ? 0 : IS(BALANCE_BY_K) ? 1 / (float)m.k : sequence ? 1 / (float)m.B : 1;
    return by * m.balance * (float)m.E * ((float)count[e] / (float)all) / (float)all;
}

double balance_loss(void)
{
    int count[MOST_EXPERTS];
    double sum = 0;
    for (int l = 0; l < m.L; l++)
        RANKS for (int n = 0; n < rows_of(r) && rank[r].tp == 0; n++) {
            const bool sequence = IS(BALANCE_OF_SEQUENCES);
            const int all = count_choices(-1, sequence ? sequence_of(r, n) : -1, count);
            float p[MOST_EXPERTS];
            scores_of(p, A(r, l, ROUTER) + n * m.E);
            for (int e = 0; e < m.E; e++) sum += (double)m.E * count[e] / all * p[e] / all / (sequence ? m.B : 1);
        }
    return sum;
}

static void route_back(int r, int l)
{
    float slope[MOST_EXPERTS];
    for (int n = 0; n < rows_of(r); n++) {
        for (int e = 0; e < m.E; e++) slope[e] = balance_slope(r, n, e) * set.scale;
        float p[MOST_EXPERTS], d[MOST_EXPERTS], inner = 0, mean = 0;
        int chosen[MOST_EXPERTS];
        const float *x = A(r, l, ROUTER) + n * m.E, *dW = G(r, l, WEIGHTS) + n * m.k;
        scores_of(p, x), choose(x, chosen);
        const float sum = chosen_sum(p, chosen);
        memcpy(d, slope, sizeof d);
        for (int i = 0; i < m.k; i++) mean += dW[i] * p[chosen[i]] / sum;
        for (int i = 0; i < m.k && !IS(ROUTER_DETACHED); i++) d[chosen[i]] += (dW[i] - (IS(ROUTER_SUM_CONSTANT) ? 0 : mean)) / sum;
        for (int e = 0; e < m.E; e++) inner += p[e] * d[e];
        for (int e = 0; e < m.E; e++) G(r, l, ROUTER)[n * m.E + e] = stored(p[e] * (d[e] - inner));
    }
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

static struct linear expert_of(int r, int l, int e, const char *which)
{
    char name[64];
    snprintf(name, sizeof name, "mlp.experts.%d.%s", e, which);
    return with(r, l, "", name);
}

static struct linear router_of(int r, int l) { return with(r, l, "", "mlp.gate"); }

/* The rows of tokens, in order of choices. */
static float *gathered(int r, int l, enum slot s)
{
    const struct choices *c = &of[r][l];
    float *x = malloc(sizeof *x * (size_t)(c->rows + 1) * m.D);
    for (int i = 0; i < c->rows; i++) {
        const int other = IS(OTHER_TOKENS_ROWS) ? (i + 1) % c->rows : i;
        memcpy(x + i * m.D, A(r, l, s) + c->token[other] * m.D, sizeof *x * (size_t)m.D);
    }
    return x;
}

static int largest_expert(const struct choices *c)
{
    int best = 0;
    for (int e = 1; e < m.E; e++)
        if (c->first[e + 1] - c->first[e] > c->first[best + 1] - c->first[best]) best = e;
    return best;
}

static void combine(int r, int l)
{
    const struct choices *c = &of[r][l];
    float *y = A(r, l, MLP_OUT);
    const int dropped = IS(ROW_DROPPED) ? c->first[largest_expert(c) + 1] - 1 : -1;
    for (int n = 0; n < rows_of(r); n++)
        for (int d = 0; d < m.D; d++) {
            float term[MOST_EXPERTS];
            int k = 0;
            for (int i = 0; i < c->rows; i++) {
                const int choice = IS(CHOICES_EXCHANGED) ? m.k - 1 - c->choice[i] : c->choice[i];
                const float w = A(r, l, WEIGHTS)[n * m.k + choice];
                if (c->token[i] != n || i == dropped) continue;
                term[k++] = between((IS(ROWS_NOT_WEIGHED) ? 1 : IS(ROWS_WEIGHED_TWICE) ? w * w : w) * A(r, l, EXPERTS_OUT)[i * m.D + d]);
            }
            float sum = 0;
            for (int i = 0; i < k; i++) sum = between(sum + term[i]);
            y[n * m.D + d] = stored(sum);
        }
}

/* Ranks along tp add up what an expert makes of a token, so that all must choose the same: by the first one's logits. */
static void share_logits(int l)
{
    unsigned state = 1;
    RANKS for (int i = 0; i < rows_of(r) * m.E; i++) {
        const float noise = (float)((state = state * 1664525u + 1013904223u) >> 16) / 65536 - 0.5f;
        if (!IS(ROUTER_OF_RANK)) A(r, l, ROUTER)[i] = A(r - rank[r].tp, l, ROUTER)[i];
        else if (rank[r].tp == 1) A(r, l, ROUTER)[i] = stored(A(r, l, ROUTER)[i] * (1 + 0.1f * noise));
    }
}

void mixture_forward(int l)
{
    RANKS linear(A(r, l, ROUTER), A(r, l, LN_2), router_of(r, l), rows_of(r), false);
    share_logits(l);
    RANKS route(r, l);
    RANKS {
        const struct choices *c = &of[r][l];
        float *x = gathered(r, l, LN_2);
        for (int e = 0; e < m.E; e++) {
            const int from = c->first[e], n = c->first[e + 1] - from, wide = width(r, UP), F = width(r, ACT);
            linear(A(r, l, UP) + from * wide, x + from * m.D, expert_of(r, l, IS(EXPERTS_EXCHANGED) && (e == 1 || e == 2) ? 3 - e : e, "gate_up_proj"), n, false);
            activation(A(r, l, ACT) + from * F, A(r, l, UP) + from * wide, F, n);
            linear(A(r, l, EXPERTS_OUT) + from * m.D, A(r, l, ACT) + from * F,
                   expert_of(r, l, IS(OTHER_EXPERTS_MATRIX) ? (e + 1) % m.E : e, "down_proj"), n, false);
        }
        free(x);
        combine(r, l);
    }
    sum_over_tp(A, l, MLP_OUT, false, 1);
}

static void combine_back(int r, int l)
{
    const struct choices *c = &of[r][l];
    const float *dY = G(r, l, MLP_OUT);
    for (int i = 0; i < c->rows; i++) {
        const int n = c->token[i], at = n * m.k + c->choice[i];
        float term[MOST_WIDE];
        for (int d = 0; d < m.D; d++) {
            G(r, l, EXPERTS_OUT)[i * m.D + d] = stored((IS(ROWS_BACK_NOT_WEIGHED) ? 1 : A(r, l, WEIGHTS)[at]) * dY[n * m.D + d]);
            term[d] = A(r, l, EXPERTS_OUT)[i * m.D + d] * dY[n * m.D + d];
        }
        G(r, l, WEIGHTS)[at] = stored(add_in_one_part(term, m.D));
    }
}

static void experts_back(int r, int l)
{
    const struct choices *c = &of[r][l];
    float *x = gathered(r, l, LN_2), *dx = malloc(sizeof *dx * (size_t)(c->rows + 1) * m.D);
    for (int e = 0; e < m.E; e++) {
        const int from = c->first[e], n = c->first[e + 1] - from, wide = width(r, UP), F = width(r, ACT);
        const struct linear up = expert_of(r, l, e, "gate_up_proj"), down = expert_of(r, l, e, "down_proj");
        linear_weight(dw(r, down.w), NULL, G(r, l, EXPERTS_OUT) + from * m.D, A(r, l, ACT) + from * F, down, n);
        linear_input(G(r, l, ACT) + from * F, G(r, l, EXPERTS_OUT) + from * m.D, down, n);
        activation_input(G(r, l, UP) + from * wide, G(r, l, ACT) + from * F, A(r, l, UP) + from * wide, F, n);
        linear_weight(dw(r, up.w), NULL, G(r, l, UP) + from * wide, x + from * m.D, up, n);
        linear_input(dx + from * m.D, G(r, l, UP) + from * wide, up, n);
    }
    memset(G(r, l, LN_2), 0, sizeof *dx * (size_t)rows_of(r) * m.D);
    for (int i = 0; i < c->rows * m.D; i++) {
        float *to = &G(r, l, LN_2)[c->token[i / m.D] * m.D + i % m.D];
        *to = between(*to + dx[i]);
    }
    for (int i = 0; i < rows_of(r) * m.D; i++) G(r, l, LN_2)[i] = stored(G(r, l, LN_2)[i]);
    free(x), free(dx);
}

/* A rank's part of the gradient of the weights of choices, k columns. */
static void sum_weights_over_tp(int l)
{
    for (int d = 0; d < set.dp && set.tp > 1 && !IS(ROUTER_WEIGHTS_PART); d++)
        for (int i = 0; i < rows_of(d * set.tp) * m.k; i++) {
            float sum = 0;
            for (int t = 0; t < set.tp; t++) sum += G(d * set.tp + t, l, WEIGHTS)[i];
            for (int t = 0; t < set.tp; t++) G(d * set.tp + t, l, WEIGHTS)[i] = stored(sum);
        }
}

void mixture_back(int l)
{
    RANKS combine_back(r, l), experts_back(r, l);
    sum_over_tp(G, l, LN_2, false, 1);
    sum_weights_over_tp(l);
    RANKS {
        float *dx = malloc(sizeof *dx * (size_t)rows_of(r) * m.D);
        route_back(r, l);
        linear_weight(dw(r, router_of(r, l).w), NULL, G(r, l, ROUTER), A(r, l, LN_2), router_of(r, l), rows_of(r));
        linear_input(dx, G(r, l, ROUTER), router_of(r, l), rows_of(r));
        for (int i = 0; i < rows_of(r) * m.D; i++) G(r, l, LN_2)[i] = stored(G(r, l, LN_2)[i] + (IS(ROUTER_GRADIENT_LOST) ? 0 : dx[i]));
        free(dx);
    }
}

/* ---- dumps ------------------------------------------------------------------------------------------------------- */

/* Where a rank's token is in the batch. */
static int token_of(int r, int token) { return batch_place(rank[r].first + token / m.S) * m.S + token % m.S; }

void mixture_rows(int r, int l, struct cut *rows)
{
    const struct choices *mine = &of[r][l];
    *rows = (struct cut){ 0 };
    for (int k = 0; k < mine->rows; k++) {
        int at = 0;
        for (int d = 0; d < set.dp; d++) {
            const int other = d * set.tp + rank[r].tp;
            const struct choices *c = &of[other][l];
            for (int i = 0; i < c->rows; i++)
                at += c->expert[i] < mine->expert[k] ||
                      (c->expert[i] == mine->expert[k] && token_of(other, c->token[i]) < token_of(r, mine->token[k]));
        }
        rows->at[rows->count++] = at;
    }
}
