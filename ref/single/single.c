#include "ref/single/parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct single_name single_act(const char *kind, int64_t layer, const char *name)
{
    struct single_name n;
    if (layer < 0) snprintf(n.text, sizeof n.text, "%s/embedding", kind);
    else snprintf(n.text, sizeof n.text, "%s/h.%lld.%s", kind, (long long)layer, name);
    return n;
}

struct single_name single_param(const struct single *s, const char *kind, int i)
{
    struct single_name n;
    snprintf(n.text, sizeof n.text, "%s/%s", kind, model_param(s->config, i).name);
    return n;
}

static struct single_name plain(const char *text)
{
    struct single_name n;
    snprintf(n.text, sizeof n.text, "%s", text);
    return n;
}

/* ---- one operation ----------------------------------------------------------------------------------------------- */

struct tensor single_new(struct single *s, int64_t rows, int64_t cols)
{
    void *data = s->used < SINGLE_SCRATCH ? calloc((size_t)(rows * cols) + 1, sizeof(double)) : NULL;
    if (data == NULL) {
        if (!s->failed) s->failed = fail(s->err, ERR_MEMORY, "no memory to recompute %s", s->now.name);
        return tensor_none;
    }
    s->scratch[s->used++] = data;
    return tensor_2d(data, F64, rows, cols);
}

void single_release(struct single *s, int used)
{
    while (s->used > used) free(s->scratch[--s->used]);
}

static void end(struct single *s) { single_release(s, 0); }

static struct tensor fetch(struct single *s, const char *name, int64_t rows, int64_t cols, enum single_found *found)
{
    const struct tensor t = s->failed ? tensor_none : single_new(s, rows, cols);
    if (!s->failed) s->failed = s->source.fetch(s->source.context, name, t, found, s->err);
    return t;
}

bool single_begin(struct single *s, struct single_name name, const char *made_by, int64_t rows, int64_t cols)
{
    enum single_found found = SINGLE_HAS_NOT;
    s->now = (struct single_result){ .made_by = made_by, .rows = rows, .cols = cols };
    memcpy(s->now.name, name.text, sizeof s->now.name);
    s->have = fetch(s, name.text, rows, cols, &found);
    if (!s->failed && found != SINGLE_HAS_NOT) return true;
    end(s);
    return false;
}

struct tensor single_input(struct single *s, struct single_name name, int64_t rows, int64_t cols)
{
    enum single_found found = SINGLE_HAS_NOT;
    const struct tensor t = fetch(s, name.text, rows, cols, &found);
    if (!s->failed && found != SINGLE_HAS && s->now.lacks[0] == 0)
        memcpy(s->now.lacks, name.text, sizeof s->now.lacks);
    return t;
}

bool single_ready(struct single *s)
{
    if (!s->failed && s->now.lacks[0] == 0) return true;
    s->now.verdict = SINGLE_LACKS;
    if (!s->failed) s->source.found(s->source.context, &s->now);
    end(s);
    return false;
}

static void note_wrong(struct single_result *r, int64_t i, unsigned char *row, unsigned char *col)
{
    const int64_t at = i / r->cols, c = i % r->cols;
    if (r->wrong++ == 0) r->first_row = r->last_row = at, r->first_col = r->last_col = c;
    if (at > r->last_row) r->last_row = at;
    if (c < r->first_col) r->first_col = c;
    if (c > r->last_col) r->last_col = c;
    row[at] = col[c] = 1;
}

/* Error over bound; a NaN is infinitely wrong. */
static double over(double error, double bound)
{
    if (error == 0) return 0;
    return isfinite(error) && isfinite(bound) ? error / bound : error == error && !isfinite(bound) ? 0 : INFINITY;
}

static void compare(struct single *s, struct tensor want, struct tensor fused, struct tensor stepwise,
                    unsigned char *row, unsigned char *col)
{
    struct single_result *r = &s->now;
    const int64_t n = tensor_count(want);
    const double *have = numbers(s->have), *y = numbers(want), *b1 = numbers(fused),
                 *b2 = s->rounding.fused ? b1 : numbers(stepwise);
    double yy = 0, hy = 0, hh = 0, bb = 0;
    bool steps = false;
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs(have[i] - y[i]), ratio = over(error, b2[i]);
        if (ratio > r->ratio || i == 0) r->ratio = ratio, r->worst = i, r->have = have[i], r->want = y[i];
        if (ratio > 1) note_wrong(r, i, row, col);
        steps = steps || over(error, b1[i]) > 1;
        yy += y[i] * y[i], hy += have[i] * y[i], hh += have[i] * have[i], bb += b2[i] * b2[i];
    }
    r->verdict = r->wrong ? SINGLE_WRONG : steps ? SINGLE_STEPWISE : SINGLE_RIGHT;
    r->factor = yy > 0 ? hy / yy : NAN;
    r->residual = sqrt(fmax(0, hh - 2 * r->factor * hy + r->factor * r->factor * yy) / yy);
    r->allowed = sqrt(bb / yy);
    r->zeros = hh == 0 && r->wrong > 0;
    for (int64_t i = 0; i < r->rows; i++) r->wrong_rows += row[i];
    for (int64_t i = 0; i < r->cols; i++) r->wrong_cols += col[i];
}

void single_end(struct single *s, struct tensor want, struct tensor fused, struct tensor stepwise)
{
    unsigned char *row = s->failed ? NULL : calloc((size_t)(s->now.rows + s->now.cols) + 1, 1);
    if (!s->failed && row == NULL) s->failed = fail(s->err, ERR_MEMORY, "no memory to compare %s", s->now.name);
    if (!s->failed) compare(s, want, fused, stepwise, row, row + s->now.rows);
    if (!s->failed) s->source.found(s->source.context, &s->now);
    free(row);
    end(s);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static struct single_norm norm_of(const struct single *s, int64_t layer, enum block_param w, enum block_param b)
{
    return (struct single_norm){ param_of_block(s->config, layer, w), param_of_block(s->config, layer, b) };
}

static struct single_matrix matrix_of(const struct single *s, int64_t layer, enum block_param w, enum block_param b)
{
    const struct model_config *c = s->config;
    const struct single_matrix m = { .weight = param_of_block(c, layer, w), .bias = param_of_block(c, layer, b) };
    struct single_matrix out = m;
    if (w == QKV_W)
        out.out = qkv_width(c), out.in = c->D, out.groups[0] = c->H * c->A, out.groups[1] = out.groups[2] = c->K * c->A;
    if (w == PROJ_W) out.out = c->D, out.in = c->H * c->A;
    if (w == UP_W) out.out = up_width(c), out.in = c->D;
    if (w == UP_W && c->mlp == MLP_SWIGLU) out.groups[0] = out.groups[1] = c->F;
    if (w == DOWN_W) out.out = c->D, out.in = c->F;
    return out;
}

static struct single_matrix head_of(const struct single *s)
{
    const struct model_config *c = s->config;
    return (struct single_matrix){ .weight = param_head(c), .bias = param_head_bias(c), .out = c->V, .in = c->D };
}

/* The tensor that attention reads. */
static const char *attended(const struct single *s)
{
    return s->config->positions == POSITIONS_ROTARY ? "attn.rotated" : "attn.qkv";
}

/* What the rotation turns: heads, or their norms. */
static const char *turned(const struct single *s) { return s->config->head_norms ? "attn.normed" : "attn.qkv"; }

#define ACT(name) single_act("act", l, name)
#define GRAD(name) single_act("grad", l, name)
#define BEFORE(kind) single_act(kind, l - 1, "out")             /* the stream that enters the block */

static void block_forward(struct single *s, int64_t l)
{
    const struct model_config *c = s->config;
    single_norm_forward(s, ACT("ln_1"), BEFORE("act"), norm_of(s, l, LN1_W, LN1_B));
    single_matrix_forward(s, ACT("attn.qkv"), ACT("ln_1"), matrix_of(s, l, QKV_W, QKV_B));
    if (c->positions == POSITIONS_ROTARY) single_rotary(s, ACT("attn.rotated"), ACT(turned(s)), false);
    single_attention_forward(s, ACT("attn.heads"), ACT(attended(s)));
    single_matrix_forward(s, ACT("attn.out"), ACT("attn.heads"), matrix_of(s, l, PROJ_W, PROJ_B));
    if (!c->parallel) {
        single_add(s, ACT("mid"), (struct single_name[]){ BEFORE("act"), ACT("attn.out") }, 2);
        single_norm_forward(s, ACT("ln_2"), ACT("mid"), norm_of(s, l, LN2_W, LN2_B));
    }
    if (c->mlp != MLP_MIXTURE) {
        single_matrix_forward(s, ACT("mlp.up"), c->parallel ? ACT("ln_1") : ACT("ln_2"),
                              matrix_of(s, l, UP_W, UP_B));
        single_activation_forward(s, ACT("mlp.act"), ACT("mlp.up"));
        single_matrix_forward(s, ACT("mlp.out"), ACT("mlp.act"), matrix_of(s, l, DOWN_W, DOWN_B));
    }
    if (c->parallel)
        single_add(s, ACT("out"), (struct single_name[]){ BEFORE("act"), ACT("attn.out"), ACT("mlp.out") }, 3);
    else single_add(s, ACT("out"), (struct single_name[]){ ACT("mid"), ACT("mlp.out") }, 2);
}

static void feed_backward(struct single *s, int64_t l)
{
    const struct single_matrix up = matrix_of(s, l, UP_W, UP_B), down = matrix_of(s, l, DOWN_W, DOWN_B);
    const struct single_name d_out = GRAD("mlp.out"), d_up = GRAD("mlp.up");
    single_matrix_weight(s, d_out, ACT("mlp.act"), down, false);
    single_matrix_input(s, GRAD("mlp.act"), &d_out, &down, 1);
    single_activation_input(s, d_up, GRAD("mlp.act"), ACT("mlp.up"));
    single_matrix_weight(s, d_up, s->config->parallel ? ACT("ln_1") : ACT("ln_2"), up, false);
    if (!s->config->parallel) single_matrix_input(s, GRAD("ln_2"), &d_up, &up, 1);
}

static void attention_backward(struct single *s, int64_t l)
{
    const struct single_matrix qkv = matrix_of(s, l, QKV_W, QKV_B), proj = matrix_of(s, l, PROJ_W, PROJ_B);
    const struct single_name d_out = GRAD("attn.out"), d_qkv = GRAD("attn.qkv");
    single_matrix_weight(s, d_out, ACT("attn.heads"), proj, false);
    single_matrix_input(s, GRAD("attn.heads"), &d_out, &proj, 1);
    single_attention_input(s, GRAD(attended(s)), GRAD("attn.heads"), ACT("attn.heads"), ACT(attended(s)));
    if (s->config->positions == POSITIONS_ROTARY) single_rotary(s, GRAD(turned(s)), GRAD("attn.rotated"), true);
    single_matrix_weight(s, d_qkv, ACT("ln_1"), qkv, false);
    if (!s->config->parallel) single_matrix_input(s, GRAD("ln_1"), &d_qkv, &qkv, 1);
}

static void block_backward(struct single *s, int64_t l)
{
    const struct model_config *c = s->config;
    const struct single_name d = GRAD("out"), mid = GRAD("mid");
    const struct single_norm ln1 = norm_of(s, l, LN1_W, LN1_B), ln2 = norm_of(s, l, LN2_W, LN2_B);
    single_add(s, GRAD("mlp.out"), &d, 1);
    if (c->mlp != MLP_MIXTURE) feed_backward(s, l);
    if (!c->parallel) {
        single_norm_weight(s, GRAD("ln_2"), ACT("mid"), ln2);
        single_norm_input(s, mid, GRAD("ln_2"), ACT("mid"), d, ln2);
    }
    single_add(s, GRAD("attn.out"), c->parallel ? &d : &mid, 1);
    attention_backward(s, l);
    if (c->parallel)
        single_matrix_input(s, GRAD("ln_1"), (struct single_name[]){ GRAD("mlp.up"), GRAD("attn.qkv") },
                            (struct single_matrix[]){ matrix_of(s, l, UP_W, UP_B), matrix_of(s, l, QKV_W, QKV_B) }, 2);
    single_norm_weight(s, GRAD("ln_1"), BEFORE("act"), ln1);
    single_norm_input(s, BEFORE("grad"), GRAD("ln_1"), BEFORE("act"), c->parallel ? d : mid, ln1);
}

static void pass(struct single *s)
{
    const struct model_config *c = s->config;
    const int64_t L = c->L;
    const struct single_norm norm = { param_final_norm(c), param_final_bias(c) };
    const struct single_matrix head = head_of(s);
    const struct single_name d_logits = plain("grad/logits");
    single_embedding_forward(s);
    for (int64_t l = 0; l < L; l++) block_forward(s, l);
    single_norm_forward(s, plain("act/ln_f"), single_act("act", L - 1, "out"), norm);
    single_matrix_forward(s, plain("act/logits"), plain("act/ln_f"), head);
    single_loss_forward(s);
    single_loss_input(s);
    single_matrix_weight(s, d_logits, plain("act/ln_f"), head, c->tied);
    single_matrix_input(s, plain("grad/ln_f"), &d_logits, &head, 1);
    single_norm_weight(s, plain("grad/ln_f"), single_act("act", L - 1, "out"), norm);
    single_norm_input(s, single_act("grad", L - 1, "out"), plain("grad/ln_f"), single_act("act", L - 1, "out"),
                      plain(""), norm);
    for (int64_t l = L - 1; l >= 0; l--) block_backward(s, l);
    single_embedding_weight(s);
    single_gradient_norm(s);
}

enum error_code single_check(const struct model_config *c, struct single_batch batch, struct rounding rounding,
                             struct single_source source, struct error *err)
{
    struct single s = { .config = c, .ops = ops_for(F64), .batch = batch, .N = batch.B * batch.S,
                        .rounding = rounding, .source = source, .err = err };
    if (c->shortcut || STREAMS(c) > 1 || c->dropout_embedding > 0 || c->dropout_residual > 0 ||
        c->dropout_attention > 0)
        return fail(err, ERR_PLAN, "operations of models with %s are not recomputed",
                    c->shortcut ? "a shortcut" : STREAMS(c) > 1 ? "parallel streams" : "dropout");
    pass(&s);
    return s.failed;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static void describe_place(const struct single_result *r, char *out, size_t size)
{
    const long long n = r->rows * r->cols, wrong = r->wrong;
    const int64_t head = r->head > 0 ? r->first_col / r->head : 0;
    if (r->rows == 1 && r->cols == 1) snprintf(out, size, "the number");
    else if (wrong == 1)
        snprintf(out, size, "only the element in row %lld, column %lld", (long long)r->first_row,
                 (long long)r->first_col);
    else if (r->rows > 1 && r->wrong_rows == 1)
        snprintf(out, size, "only row %lld of %lld", (long long)r->first_row, (long long)r->rows);
    else if (r->cols > 1 && r->wrong_cols == 1)
        snprintf(out, size, "only column %lld of %lld", (long long)r->first_col, (long long)r->cols);
    else if (r->head > 0 && r->cols > r->head && r->last_col / r->head == head)
        snprintf(out, size, "only head %lld of %lld", (long long)head, (long long)(r->cols / r->head));
    else if (r->rows > 1 && 2 * r->wrong_rows <= r->rows && r->last_row - r->first_row + 1 == r->wrong_rows)
        snprintf(out, size, "only rows %lld to %lld of %lld", (long long)r->first_row, (long long)r->last_row,
                 (long long)r->rows);
    else snprintf(out, size, "%lld of %lld elements", wrong, n);
}

const char *single_describe(const struct single_result *r, char *out, size_t size)
{
    char place[96];
    const double noise = r->allowed > 1e-3 ? r->allowed : 1e-3;
    describe_place(r, place, sizeof place);
    if (r->zeros) snprintf(out, size, "all of it is zero");
    else if (r->rows * r->cols > 1 && r->residual <= noise && fabs(r->factor - 1) > r->residual)
        snprintf(out, size, "expected times %.4f; %s outside the bound", r->factor, place);
    else snprintf(out, size, "%s outside the bound", place);
    return out;
}
