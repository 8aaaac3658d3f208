/* model.c -- a step's forward and backward pass on all ranks, in lockstep: each operation on every rank, then the sums
 * between ranks.  A rank has its sequences, copy along dp, and its heads and columns, along tp; microbatches are passes
 * over some of its sequences.
 */
#include "slots.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const slot_name[] = { "ln_1", "attn.qkv", "attn.normed", "attn.rotated", "attn.heads", "attn.out", "mid", "ln_2",
                                         "router.logits", "router.weights", "mlp.up", "mlp.act", "experts.out", "mlp.out", "out",
                                         "embedding", "ln_f", "logits" };

struct rank rank[MOST_RANKS];
int ranks, *ids, *labels;
double loss_now, balance_now;

static float *act[MOST_RANKS][MOST_LAYERS + 1][SLOTS], *grad[MOST_RANKS][MOST_LAYERS + 1][SLOTS];
static struct cut cuts[5][MOST_RANKS];

/* ---- what a rank has --------------------------------------------------------------------------------------------- */

static int begin_of(int n, int parts, int i) { return n / parts * i + (i < n % parts ? i : n % parts); }

/* The first of copy d's sequences, in the order of copies.  uneven: the first copy has one, the others share the rest. */
static int copy_begin(int d)
{
    return set.cut == UNEVEN && set.dp > 1 ? (d ? 1 + begin_of(m.B - 1, set.dp - 1, d - 1) : 0) : begin_of(m.B, set.dp, d);
}

int batch_place(int i)
{
    int d = 0;
    while (copy_begin(d + 1) <= i) d++;
    return set.cut == STRIDED ? d + (i - copy_begin(d)) * set.dp : i;
}

int turned(int sequence)
{
    int d = 0;
    while (copy_begin(d + 1) <= sequence) d++;
    return (copy_begin((d + 1) % set.dp) + sequence - copy_begin(d)) % m.B;
}

void extend(struct cut *c, int from, int to)
{
    while (from < to) c->at[c->count++] = from++;
}

/* With more ranks than heads of keys and values each rank has some query heads, and the keys and values that they use. */
int heads_begin(int t) { return set.tp > m.K ? begin_of(m.H, set.tp, t) : begin_of(m.K, set.tp, t) * (m.H / m.K); }

static void cuts_make(void)
{
    for (int t = 0; t < set.tp; t++) {
        const int h0 = heads_begin(t), h1 = heads_begin(t + 1), group = m.H / m.K, k0 = h0 / group, k1 = (h1 - 1) / group + 1, A = m.A;
        const int f0 = begin_of(m.F, set.tp, t), f1 = begin_of(m.F, set.tp, t + 1);
        extend(&cuts[OF_QKV][t], h0 * A, h1 * A);
        extend(&cuts[OF_QKV][t], (m.H + k0) * A, (m.H + k1) * A);
        extend(&cuts[OF_QKV][t], (m.H + m.K + k0) * A, (m.H + m.K + k1) * A);
        extend(&cuts[OF_HEADS][t], h0 * A, h1 * A);
        extend(&cuts[OF_F][t], f0, f1), extend(&cuts[OF_UP][t], f0, f1);
        if (m.llama) extend(&cuts[OF_UP][t], m.F + f0, m.F + f1);
    }
}

const struct cut *cut_of(enum axis a, int whole, int tp)
{
    static struct cut all[MOST_WIDE + 1];
    if (a != WHOLE) return &cuts[a][tp];
    if (all[whole].count == 0) extend(&all[whole], 0, whole);
    return &all[whole];
}

static enum axis axis_of(enum slot s)
{
    return s == QKV || s == NORMED || s == ROTATED ? OF_QKV : s == HEADS ? OF_HEADS : s == UP ? OF_UP : s == ACT ? OF_F : WHOLE;
}

static int width_of(enum slot s)
{
    return s == QKV || s == NORMED || s == ROTATED ? (m.H + 2 * m.K) * m.A : s == ROUTER ? m.E : s == WEIGHTS ? m.k : s == HEADS ? m.H * m.A : s == UP ? m.F * (m.llama ? 2 : 1)
         : s == ACT ? m.F : s == LOGITS ? m.V : m.D;
}

/* Rows for each token. */
static int rows_each(enum slot s) { return m.moe && (s == UP || s == ACT || s == EXPERTS_OUT) ? m.k : 1; }

static int local_width(enum slot s, int tp) { return cut_of(axis_of(s), width_of(s), tp)->count; }

void ranks_make(void)
{
    cuts_make();
    ranks = set.dp * set.tp;
    for (int r = 0; r < ranks; r++) {
        const int dp = r / set.tp, first = copy_begin(dp);
        rank[r] = (struct rank){ .dp = dp, .tp = r % set.tp, .first = first, .count = copy_begin(dp + 1) - first };
        for (int p = 0; p < params; p++)
            rank[r].dw[p] = calloc((size_t)cut_of(param[p].row_axis, param[p].rows, r % set.tp)->count *
                                       cut_of(param[p].col_axis, param[p].cols, r % set.tp)->count, sizeof(float));
        if (!m.llama) rank[r].dw_head = calloc((size_t)m.V * m.D, sizeof(float));
        for (int l = 0; l <= m.L; l++)
            for (int s = 0; s < SLOTS; s++) {
                const size_t n = (size_t)rank[r].count * m.S * rows_each((enum slot)s) * local_width((enum slot)s, r % set.tp);
                act[r][l][s] = calloc(n, sizeof(float)), grad[r][l][s] = calloc(n, sizeof(float));
            }
    }
}

/* ---- the current microbatch -------------------------------------------------------------------------------------- */

static int micro;

static int first_of(int r) { return begin_of(rank[r].count, set.micros, micro); }
static int sequences_of(int r) { return begin_of(rank[r].count, set.micros, micro + 1) - first_of(r); }
int rows_of(int r) { return sequences_of(r) * m.S; }
static float *rows(float *x, int r, enum slot s) { return x + first_of(r) * m.S * local_width(s, rank[r].tp); }
float *A(int r, int l, enum slot s) { return rows(act[r][l][s], r, s); }
float *G(int r, int l, enum slot s) { return rows(grad[r][l][s], r, s); }
static float *stream(int r, int l) { return l ? A(r, l - 1, OUT) : A(r, m.L, EMBEDDING); }
static float *d_stream(int r, int l) { return l ? G(r, l - 1, OUT) : G(r, m.L, EMBEDDING); }
static int heads_of(int r) { return local_width(HEADS, rank[r].tp) / m.A; }
static int kv_of(int r) { return (local_width(QKV, rank[r].tp) / m.A - heads_of(r)) / 2; }
int width(int r, enum slot s) { return local_width(s, rank[r].tp); }

void sum_over_tp(float *(*x)(int, int, enum slot), int l, enum slot s, bool missing, int times_first)
{
    if (set.tp == 1 || missing) return;
    for (int d = 0; d < set.dp; d++) {
        const int r0 = d * set.tp, n = rows_of(r0) * width(r0, s);
        for (int i = 0; i < n; i++) {
            float sum[MOST_RANKS] = { 0 };
            for (int to = 0; to < set.tp; to++)
                for (int k = 0; k < set.tp; k++) {
                    const int t = set.order == APART ? (to + k) % set.tp : k;
                    sum[to] += (t ? 1 : (float)times_first) * x(r0 + t, l, s)[i];
                }
            for (int t = 0; t < set.tp; t++) x(r0 + t, l, s)[i] = stored(sum[t]);
        }
    }
}

struct linear with(int r, int l, const char *gpt2, const char *llama)
{
    char w[64], b[64];
    snprintf(w, sizeof w, "%s.weight", m.llama ? llama : gpt2), snprintf(b, sizeof b, "%s.bias", gpt2);
    return (struct linear){ param_of(l, w), m.llama ? -1 : param_of(l, b), rank[r].tp };
}

static struct linear qkv_of(int r, int l) { return with(r, l, "attn.c_attn", "self_attn.qkv_proj"); }
static struct linear proj_of(int r, int l) { return with(r, l, "attn.c_proj", "self_attn.o_proj"); }
static struct linear up_of(int r, int l) { return with(r, l, "mlp.c_fc", "mlp.gate_up_proj"); }
static struct linear down_of(int r, int l) { return with(r, l, "mlp.c_proj", "mlp.down_proj"); }
static struct linear ln_1_of(int l) { return with(0, l, "ln_1", "input_layernorm"); }
static struct linear ln_2_of(int l) { return with(0, l, "ln_2", "post_attention_layernorm"); }
static struct linear ln_f_of(void) { return with(0, -1, "ln_f", "model.norm"); }
static struct linear head_of(void) { return with(0, -1, "wte", "lm_head"); }
static int embedding_of(void) { return param_of(-1, m.llama ? "model.embed_tokens.weight" : "wte.weight"); }

/* Bugs that are in one layer; one, which is also a convention of whole programs, is in all. */
static enum bug only_in(int l, int layer)
{
    const enum bug was = bug;
    if (l != layer && !IS(BALANCE_OF_SEQUENCES)) bug = NO_BUG;
    return was;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Row n of the batch. */
static int token_at(int n) { return ids[IS(INPUTS_TAKE_TURNS) ? turned(n / m.S) * m.S + n % m.S : n]; }

static void embed(int r)
{
    const int token = embedding_of(), position = param_of(-1, "wpe.weight");
    for (int i = 0; i < rows_of(r) * m.D; i++) {
        const int n = (rank[r].first + first_of(r)) * m.S + i / m.D, s = IS(POSITIONS_SHIFTED) ? n % m.S + 1 : n % m.S;
        const float x = param[token].w[token_at(n) * m.D + i % m.D];
        A(r, m.L, EMBEDDING)[i] = embedding_dropped(stored(m.llama ? x : x + param[position].w[s * m.D + i % m.D]), n, i % m.D);
    }
}

static struct at at(int r, int i)
{
    return (struct at){ (rank[r].first + first_of(r)) * m.S + i / m.D, rank[r].first * m.S, i % m.D };
}

/* y = a + b, of which some is dropped; for bugs: with the branch lost, or twice. */
static void add(float *y, const float *a, const float *b, int r, int l, enum drop p)
{
    for (int i = 0; i < rows_of(r) * m.D; i++)
        y[i] = stored((IS(RESIDUAL_MISSING) ? 0 : a[i]) + branch_dropped(b[i], l, p, at(r, i)) * (IS(BRANCH_TWICE) ? 2 : 1));
}

static void drop_back(float *y, const float *d, int r, int l, enum drop p)
{
    for (int i = 0; i < rows_of(r) * m.D; i++) y[i] = branch_back(d[i], l, p, at(r, i));
}

static const struct heads_at *heads_at(int r, int l)
{
    static struct heads_at of;
    return of = (struct heads_at){ l, heads_of(r), kv_of(r), cut_of(OF_HEADS, 0, rank[r].tp)->at[0] / m.A, rank[r].first + first_of(r) }, &of;
}

/* A bias that is added when parts have been summed. */
static void add_bias(float *y, int b, int rows)
{
    if (b < 0 || set.tp == 1 || IS(BIAS_ON_EVERY_RANK)) return;
    for (int i = 0; i < rows * m.D; i++) y[i] = stored(y[i] + param[b].w[i % m.D]);
}

/* The previous microbatch's numbers stay in a buffer. */
static void stale(int l)
{
    if (!IS(STALE_MICRO) || micro == 0 || l != 0) return;
    RANKS {
        const size_t n = (size_t)rows_of(r) * width(r, UP);
        memcpy(A(r, l, UP), A(r, l, UP) - n, n * sizeof(float));
    }
}

static void swap_blocks(int l)
{
    if (!IS(QKV_ORDER)) return;
    RANKS for (int n = 0; n < rows_of(r); n++)          /* keys and values change places */
        for (int i = 0; i < kv_of(r) * m.A; i++) {
            float *x = A(r, l, QKV) + n * width(r, QKV) + heads_of(r) * m.A + i, *y = x + kv_of(r) * m.A, z = *x;
            *x = *y, *y = z;
        }
}

/* The second norm of what this rank has before the sum over tp: with the stream, which counts once if norms are added. */
static void norm_of_part(int r, int l)
{
    for (int i = 0; i < rows_of(r) * m.D; i++)
        A(r, l, MID)[i] = A(r, l, ATTN_OUT)[i] + (IS(NORM_OF_PART) || rank[r].tp == 0 ? stream(r, l)[i] : 0);
    norm(A(r, l, LN_2), A(r, l, MID), ln_2_of(l).w, ln_2_of(l).b, rows_of(r));
}

/* The norm before attention: for a bug, one rank's weight has changed by a hundredth. */
static void first_norm(int r, int l)
{
    float *w = param[ln_1_of(l).w].w, right[MOST_WIDE];
    memcpy(right, w, (size_t)m.D * sizeof *w);
    for (int i = 0; i < m.D && IS(NORM_WEIGHT_OF_RANK) && rank[r].tp == 1; i++) w[i] *= 1.01f;
    norm(A(r, l, LN_1), stream(r, l), ln_1_of(l).w, ln_1_of(l).b, rows_of(r));
    memcpy(w, right, (size_t)m.D * sizeof *w);
}

static void attention_forward(int l)
{
    const bool inside = set.tp == 1 || IS(BIAS_ON_EVERY_RANK);
    RANKS first_norm(r, l);
    RANKS linear(A(r, l, QKV), A(r, l, LN_1), qkv_of(r, l), rows_of(r), !m.llama);
    swap_blocks(l);
    if (m.moe) RANKS head_norms(A(r, l, NORMED), A(r, l, QKV), l, heads_of(r), kv_of(r), rows_of(r));
    if (m.llama) RANKS rotate(A(r, l, ROTATED), A(r, l, m.moe ? NORMED : QKV), heads_of(r), kv_of(r), rows_of(r), false);
    RANKS attention(A(r, l, HEADS), A(r, l, m.llama ? ROTATED : QKV), heads_at(r, l), sequences_of(r));
    RANKS linear(A(r, l, ATTN_OUT), A(r, l, HEADS), proj_of(r, l), rows_of(r), !m.llama && inside);
    if (IS(NORM_BEFORE_SUM) || IS(NORM_OF_PART)) RANKS norm_of_part(r, l);
    sum_over_tp(A, l, ATTN_OUT, IS(SUM_MISSING), IS(SUM_FIRST_TWICE) ? 2 : 1);
    RANKS add_bias(A(r, l, ATTN_OUT), proj_of(r, l).b, rows_of(r));
    RANKS add(A(r, l, MID), stream(r, l), A(r, l, ATTN_OUT), r, l, AFTER_ATTENTION);
}

static void feed_forward(int l)
{
    RANKS linear(A(r, l, UP), A(r, l, LN_2), up_of(r, l), rows_of(r), !m.llama);
    stale(l);
    RANKS activation(A(r, l, ACT), A(r, l, UP), width(r, ACT), rows_of(r));
    RANKS linear(A(r, l, MLP_OUT), A(r, l, ACT), down_of(r, l), rows_of(r), !m.llama && set.tp == 1);
    sum_over_tp(A, l, MLP_OUT, false, 1);
    RANKS add_bias(A(r, l, MLP_OUT), down_of(r, l).b, rows_of(r));
}

static void second_half(int l)
{
    if (IS(NORM_BEFORE_SUM)) sum_over_tp(A, l, LN_2, false, 1);
    else if (!IS(NORM_OF_PART)) RANKS norm(A(r, l, LN_2), A(r, l, MID), ln_2_of(l).w, ln_2_of(l).b, rows_of(r));
    if (m.moe) mixture_forward(l);
    else feed_forward(l);
    RANKS add(A(r, l, OUT), A(r, l, MID), A(r, l, MLP_OUT), r, l, AFTER_MLP);
}

static int counted_of(int first, int sequences)
{
    int n = 0;
    for (int i = first * m.S; i < (first + sequences) * m.S; i++) n += labels[i] >= 0 || IS(IGNORED_COUNTED);
    return n;
}

/* Rows of logits go to another place: the pieces of a vocabulary in the wrong order. */
static void shift_vocabulary(int r)
{
    float x[MOST_WIDE];
    if (!IS(VOCABULARY_SHIFTED)) return;
    for (int n = 0; n < rows_of(r); n++) {
        float *row = A(r, m.L, LOGITS) + n * m.V;
        memcpy(x, row, sizeof *x * (size_t)m.V);
        for (int v = 0; v < m.V; v++) row[v] = x[(v + 1) % m.V];
    }
}

static void loss_forward(void)
{
    const int all = counted_of(0, m.B);
    RANKS norm(A(r, m.L, LN_F), A(r, m.L - 1, OUT), ln_f_of().w, ln_f_of().b, rows_of(r));
    RANKS linear(A(r, m.L, LOGITS), A(r, m.L, LN_F), head_of(), rows_of(r), false);
    RANKS shift_vocabulary(r);
    if (m.moe) balance_now = balance_loss(), loss_now += IS(BALANCE_NOT_REPORTED) ? 0 : m.balance * balance_now;
    RANKS {
        const int first = rank[r].first + first_of(r);
        int counted = all;
        if (IS(MEAN_OF_MEANS)) counted = counted_of(rank[r].first, rank[r].count) * set.dp;
        if (IS(MEAN_OF_MICROS)) counted = counted_of(first, sequences_of(r)) * set.micros;
        if (IS(LOSS_SUMMED)) counted = 1;
        if (IS(MEAN_OF_ROWS)) counted = m.N;
        const double part = loss(G(r, m.L, LOGITS), A(r, m.L, LOGITS), labels + first * m.S, rows_of(r), counted > 0 ? counted : 1);
        const int own = counted_of(rank[r].first, rank[r].count) * set.dp;
        const double times = (IS(LOSS_OF_COPIES) || IS(LOSS_OF_COPIES_NARROW)) && own > 0 ? (double)counted / own : 1;
        if (rank[r].tp == 0) loss_now += IS(LOSS_OF_FIRST) && rank[r].dp ? 0 : times * part;
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

float *dw(int r, int p) { return p < 0 ? NULL : rank[r].dw[p]; }

/* dx = the gradient through the norm, in dx, + what passes by. */
static void add_beside(float *dx, const float *beside, int n, bool lost)
{
    for (int i = 0; i < n; i++) dx[i] = stored(dx[i] + (lost ? 0 : beside[i]));
}

static void linear_back(int l, enum slot dx, enum slot dy, enum slot x, struct linear (*of)(int, int))
{
    RANKS linear_weight(dw(r, of(r, l).w), dw(r, of(r, l).b), G(r, l, dy), A(r, l, x), of(r, l), rows_of(r));
    RANKS linear_input(G(r, l, dx), G(r, l, dy), of(r, l), rows_of(r));
}

static void feed_back(int l)
{
    linear_back(l, ACT, MLP_OUT, ACT, down_of);
    RANKS activation_input(G(r, l, UP), G(r, l, ACT), A(r, l, UP), width(r, ACT), rows_of(r));
    linear_back(l, LN_2, UP, LN_2, up_of);
    sum_over_tp(G, l, LN_2, IS(SUM_BACK_MISSING), IS(SUM_BACK_FIRST_TWICE) ? 2 : 1);
    if (IS(SUM_BACK_TIMES_TP)) RANKS for (int i = 0; i < rows_of(r) * m.D; i++) G(r, l, LN_2)[i] *= (float)set.tp;
}

static void second_half_back(int l)
{
    RANKS drop_back(G(r, l, MLP_OUT), G(r, l, OUT), r, l, AFTER_MLP);
    if (IS(BRANCH_GRADIENT_HALF)) RANKS for (int i = 0; i < rows_of(r) * m.D; i++) G(r, l, MLP_OUT)[i] /= 2;
    if (m.moe) mixture_back(l);
    else feed_back(l);
    RANKS norm_weight(dw(r, ln_2_of(l).w), dw(r, ln_2_of(l).b), G(r, l, LN_2), A(r, l, MID), rows_of(r));
    RANKS norm_input(G(r, l, MID), G(r, l, LN_2), A(r, l, MID), ln_2_of(l).w, rows_of(r));
    RANKS add_beside(G(r, l, MID), G(r, l, OUT), rows_of(r) * m.D, false);
}

static void head_norms_back(int r, int l)
{
    float *const once = set.copies_summed && copies_any() ? copies_once(r, l, NORMED) : NULL;
    head_norms_weight(dw(r, param_of(l, "self_attn.qk_norm.weight")), once ? once : G(r, l, NORMED), A(r, l, QKV), heads_of(r), kv_of(r), rows_of(r));
    free(once);
    head_norms_input(G(r, l, QKV), G(r, l, NORMED), A(r, l, QKV), l, heads_of(r), kv_of(r), rows_of(r));
}

/* This comes back through queries, keys and values.  If copies have the whole, only one of them counts. */
static void qkv_back(int l)
{
    linear_back(l, LN_1, QKV, LN_1, qkv_of);
    if (set.copies_summed && copies_any())
        RANKS {
            float *const once = copies_once(r, l, QKV);
            linear_input(G(r, l, LN_1), once, qkv_of(r, l), rows_of(r));
            free(once);
        }
    sum_over_tp(G, l, LN_1, false, 1);
}

static void attention_back(int l)
{
    RANKS drop_back(G(r, l, ATTN_OUT), G(r, l, MID), r, l, AFTER_ATTENTION);
    linear_back(l, HEADS, ATTN_OUT, HEADS, proj_of);
    const enum slot in = m.llama ? ROTATED : QKV;
    RANKS attention_input(G(r, l, in), G(r, l, HEADS), A(r, l, HEADS), A(r, l, in), heads_at(r, l), sequences_of(r));
    if (set.copies_summed && copies_any()) copies_sum(l, in);
    if (m.llama) RANKS rotate(G(r, l, m.moe ? NORMED : QKV), G(r, l, ROTATED), heads_of(r), kv_of(r), rows_of(r), true);
    if (m.moe) RANKS head_norms_back(r, l);
    qkv_back(l);
    RANKS norm_weight(dw(r, ln_1_of(l).w), dw(r, ln_1_of(l).b), G(r, l, LN_1), stream(r, l), rows_of(r));
    RANKS norm_input(d_stream(r, l), G(r, l, LN_1), stream(r, l), ln_1_of(l).w, rows_of(r));
    RANKS add_beside(d_stream(r, l), G(r, l, MID), rows_of(r) * m.D,
                     IS(RESIDUAL_BACK_MISSING) || (IS(RESIDUAL_BACK_OF_RANK) && rank[r].tp == 1));
}

static void embed_back(int r)
{
    const int token = embedding_of(), position = param_of(-1, "wpe.weight");
    for (int i = 0; i < rows_of(r) * m.D; i++) {
        const int n = (rank[r].first + first_of(r)) * m.S + i / m.D;
        const float d = embedding_dropped(G(r, m.L, EMBEDDING)[i], n, i % m.D);
        float *to = &rank[r].dw[token][token_at(n) * m.D + i % m.D];
        if (!IS(TIED_MISSING) && !(IS(TOKEN_WITHOUT) && token_at(n) == 0)) *to = IS(REPEATED_TOKEN_OVERWRITTEN) ? d : *to + d;
        if (position >= 0) rank[r].dw[position][n % m.S * m.D + i % m.D] += d;
    }
}

static void backward(void)
{
    RANKS linear_weight(m.llama ? dw(r, head_of().w) : rank[r].dw_head, NULL, G(r, m.L, LOGITS), A(r, m.L, LN_F), head_of(), rows_of(r));
    RANKS linear_input(G(r, m.L, LN_F), G(r, m.L, LOGITS), head_of(), rows_of(r));
    RANKS norm_weight(dw(r, ln_f_of().w), dw(r, ln_f_of().b), G(r, m.L, LN_F), A(r, m.L - 1, OUT), rows_of(r));
    RANKS norm_input(G(r, m.L - 1, OUT), G(r, m.L, LN_F), A(r, m.L - 1, OUT), ln_f_of().w, rows_of(r));
    for (int l = m.L - 1; l >= 0; l--) {
        const enum bug was = only_in(l, m.L - 1);
        second_half_back(l), attention_back(l);
        bug = was;
    }
    RANKS embed_back(r);
}

/* ---- sums over dp ------------------------------------------------------------------------------------------------ */

static const char *middle(void) { return m.llama ? "layers.1.mlp.gate_up_proj" : "h.1.mlp.c_fc.weight"; }

/* dp ranks own halves of a gradient, and one copies the other's. */
static void exchange_halves(float *x, int n)
{
    for (int i = 0; i < n / 2; i++) {
        const float y = x[i];
        x[i] = x[n / 2 + i], x[n / 2 + i] = y;
    }
}

/* Three shards, each where the next belongs. */
static void turn_shards(float *x, int n)
{
    float last[4096];
    const int part = n / 3;
    memcpy(last, x + 2 * part, (size_t)part * sizeof *x);
    memmove(x + part, x, 2 * (size_t)part * sizeof *x);
    memcpy(x, last, (size_t)part * sizeof *x);
}

static void sum_over_dp(int t, int p)
{
    const int n = cut_of(param[p].row_axis, param[p].rows, t)->count * cut_of(param[p].col_axis, param[p].cols, t)->count;
    const bool here = strstr(param[p].name, middle()) != NULL;
    if (IS(DP_SUM_MISSING) && here) return;
    if (IS(ROUTER_NOT_SUMMED) && strstr(param[p].name, "layers.1.mlp.gate.weight")) return;
    if (IS(EXPERT_LEFT_OUT) && strstr(param[p].name, "layers.1.mlp.experts.2.")) return;
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int d = 0; d < set.dp; d++) sum += rank[d * set.tp + t].dw[p][i];
        if (IS(DP_AVERAGED_TWICE) && here) sum /= (float)set.dp;
        if ((IS(DP_SUMMED_TWICE) && here) || (IS(EXPERTS_TIMES_DP) && strstr(param[p].name, "layers.1.mlp.experts."))) sum *= (float)set.dp;
        if (IS(GRADIENT_IN_16_BITS) && here) sum = round_to(set.format == FP32 ? BF16 : set.format, sum);
        for (int d = 0; d < set.dp; d++) rank[d * set.tp + t].dw[p][i] = sum;
    }
    for (int d = 0; d < set.dp && here; d++) {
        if (IS(OTHER_RANKS_HALF)) exchange_halves(rank[d * set.tp + t].dw[p], n);
        if (IS(SHARDS_TAKE_TURNS)) turn_shards(rank[d * set.tp + t].dw[p], n);
    }
}

/* Each rank along tp has its heads' part of the gradient of their norms. */
static void sum_head_norms(void)
{
    for (int d = 0; d < set.dp; d++)
        for (int l = 0; l < m.L; l++)
            for (int i = 0; i < 2 * m.A; i++) {
                const int p = param_of(l, "self_attn.qk_norm.weight");
                float sum = 0;
                for (int t = 0; t < set.tp; t++) sum += rank[d * set.tp + t].dw[p][i];
                for (int t = 0; t < set.tp; t++) rank[d * set.tp + t].dw[p][i] = sum;
            }
}

void gradients_join(void)
{
    if (m.moe && !IS(HEAD_NORMS_PART)) sum_head_norms();
    if (!set.copies_summed && copies_any()) copies_sum_weights();
    for (int t = 0; t < set.tp; t++)
        for (int p = 0; p < params; p++) {
            const struct cut *row = cut_of(param[p].row_axis, param[p].rows, t), *col = cut_of(param[p].col_axis, param[p].cols, t);
            sum_over_dp(t, p);
            if (t > 0 && param[p].row_axis == WHOLE && param[p].col_axis == WHOLE) continue;    /* a copy */
            for (int i = 0; i < row->count; i++)
                for (int k = 0; k < col->count; k++)
                    param[p].g[row->at[i] * param[p].cols + col->at[k]] = rank[t].dw[p][i * col->count + k];
        }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Whether the model has it, and a rank shows it. */
static bool is_shown(enum slot s)
{
    return s == ROTATED ? m.llama : s == NORMED || s == ROUTER || s == WEIGHTS || s == EXPERTS_OUT ? m.moe : true;
}

/* In a gradient of queries, keys and values, queries are whole; each head of keys and values is a part of a sum over its copies. */
static void dump_copied(int r, const char *name, const float *x, struct place at)
{
    const int wide = at.col->count, rows = at.row ? at.row->count : at.rows, micro = at.micro;
    struct cut cut, copies;
    for (int piece = 0; piece < copies_cut(rank[r].tp, piece, &cut, &copies); piece++) {
        float *some = malloc(sizeof *some * (size_t)rows * cut.count);
        if (some == NULL) exit(1);
        for (int n = 0; n < rows; n++)
            for (int i = 0, k = 0; i < wide && k < cut.count; i++)
                if (at.col->at[i] == cut.at[k]) some[n * cut.count + k++] = x[n * wide + i];
        dump(r, name, some, false, 1 / set.scale,
             (struct place){ at.rows, at.cols, at.row, &cut, false, false, micro, 1 + piece, piece ? &copies : NULL });
        free(some);
    }
}

/* part: of the rows; -1: all of them. */
static void dump_rows(int r, int l, enum slot s, int part)
{
    struct cut tokens = { 0 };
    char name[96];
    const char *const kind[] = { "act", "grad" };
    const int skip = part < 0 ? 0 : begin_of(rank[r].count, set.micros, part),
              end = part < 0 ? rank[r].count : begin_of(rank[r].count, set.micros, part + 1);
    if (rows_each(s) > 1) mixture_rows(r, l, &tokens);
    else for (int i = skip; i < end; i++) {
        const int at = batch_place(rank[r].first + i);
        extend(&tokens, at * m.S, (at + 1) * m.S);
    }
    for (int g = 0; g < 2; g++) {
        if (l < m.L) snprintf(name, sizeof name, "%s/h.%d.%s", kind[g], l, slot_name[s]);
        else snprintf(name, sizeof name, "%s/%s", kind[g], slot_name[s]);
        const struct place at = { m.N * rows_each(s), width_of(s), set.dp > 1 || part >= 0 ? &tokens : NULL,
                                  axis_of(s) != WHOLE && set.tp > 1 ? cut_of(axis_of(s), width_of(s), rank[r].tp) : NULL,
                                  s == EXPERTS_OUT && g == 0 && set.tp > 1, false, part + 1, 0, NULL };
        const int own = at.col ? at.col->count : at.cols;
        if (g && axis_of(s) == OF_QKV && !set.copies_summed && copies_any()) dump_copied(r, name, grad[r][l][s] + skip * m.S * own, at);
        else dump(r, name, (g ? grad : act)[r][l][s] + skip * m.S * own, false, g ? 1 / set.scale : 1, at);
    }
}

static void dump_slot(int r, int l, enum slot s)
{
    if (!is_shown(s)) return;
    if (set.micros == 1) dump_rows(r, l, s, -1);
    for (int k = 0; set.micros > 1 && k < set.micros; k++)
        if (begin_of(rank[r].count, set.micros, k) < begin_of(rank[r].count, set.micros, k + 1)) dump_rows(r, l, s, k);
}

/* ---- gradients of weights ---------------------------------------------------------------------------------------- */

static int own_count(int r, int p)
{
    return cut_of(param[p].row_axis, param[p].rows, rank[r].tp)->count *
           cut_of(param[p].col_axis, param[p].cols, rank[r].tp)->count;
}

/* The sum of the microbatches before, while the next computes its own gradient. */
static float *before[MOST_RANKS][MOST_PARAMS + 1];

static void exchange(int r, int p, float *dw, int n, bool back)
{
    if (before[r][p] == NULL) before[r][p] = calloc((size_t)n, sizeof(float));
    for (int i = 0; i < n; i++) {
        const float sum = before[r][p][i] + stored(dw[i]);
        if (back) dw[i] = set.gradients == SUMS_STORED ? stored(sum) : sum;
        else before[r][p][i] = dw[i], dw[i] = 0;
    }
}

static void set_aside(bool back)
{
    if (set.gradients == IN_FP32) return;
    RANKS for (int p = 0; p < params; p++) exchange(r, p, rank[r].dw[p], own_count(r, p), back);
    if (!m.llama) RANKS exchange(r, params, rank[r].dw_head, m.V * m.D, back);
}

/* Both ends of the pipeline then have the gradient of the tied matrix. */
static void sum_tied(int r)
{
    float *const ends[] = { dw(r, embedding_of()), rank[r].dw_head };
    for (int i = 0; i < m.V * m.D; i++) ends[0][i] = ends[1][i] = ends[0][i] + ends[1][i];
}

void pass(bool dumped)
{
    loss_now = 0;
    RANKS for (int p = 0; p < params; p++) memset(rank[r].dw[p], 0, sizeof(float) * (size_t)own_count(r, p));
    if (!m.llama) RANKS memset(rank[r].dw_head, 0, sizeof(float) * (size_t)m.V * m.D);
    for (micro = 0; micro < set.micros; micro++) {
        RANKS embed(r);
        for (int l = 0; l < m.L; l++) {
            const enum bug was = only_in(l, IS(STALE_MICRO) ? 0 : m.L - 1);
            attention_forward(l), second_half(l);
            bug = was;
        }
        loss_forward();
        set_aside(false);
        backward();
        set_aside(true);
    }
    if (!m.llama && !IS(TIED_NOT_SUMMED)) RANKS sum_tied(r);
    if (dumped)
        RANKS {
            for (int l = 0; l < m.L; l++)
                for (int s = 0; s < EMBEDDING; s++) dump_slot(r, l, (enum slot)s);
            for (int s = EMBEDDING; s < SLOTS; s++) dump_slot(r, m.L, (enum slot)s);
        }
}
