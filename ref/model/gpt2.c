#include "ref/model/partial.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool make(struct tensor *t, enum dtype dtype, int64_t rows, int64_t cols)
{
    *t = cols ? tensor_2d(NULL, dtype, rows, cols) : tensor_1d(NULL, dtype, rows);
    size_t bytes = (tensor_bytes(*t) + 63) / 64 * 64;
    t->data = aligned_alloc(64, bytes ? bytes : 64);
    return t->data != NULL;
}

static void drop(struct tensor *t) { free(t->data); *t = tensor_none; }

static void drop_buffers(struct gpt2 *m)
{
    for (int64_t l = 0; m->block && l < m->config.L; l++) {
        struct block_activations *a = &m->block[l];
        struct tensor *const all[] = { &a->in, &a->ln1_mean, &a->ln1_rstd, &a->ln1, &a->qkv, &a->lse, &a->att, &a->mid,
                                       &a->ln2_mean, &a->ln2_rstd, &a->ln2, &a->up, &a->act };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
    }
    struct tensor *const all[] = { &m->ids, &m->positions, &m->labels, &m->last, &m->lnf_mean, &m->lnf_rstd, &m->lnf,
                                   &m->logits, &m->top, &m->total, &m->hit, &m->d_stream, &m->d_branch, &m->d_wide,
                                   &m->d_attention, &m->branch };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
    m->B = m->S = 0;
}

static enum error_code make_buffers(struct gpt2 *m, int64_t B, int64_t S, struct error *err)
{
    if (B == m->B && S == m->S) return OK;
    drop_buffers(m);
    const struct model_config *c = &m->config;
    const enum dtype t = m->ops->dtype;
    const int64_t N = B * S, D = c->D, F = c->F;
    bool ok = true;
    for (int64_t l = 0; l < c->L; l++) {
        struct block_activations *a = &m->block[l];
        ok = ok && make(&a->in, t, N, D) && make(&a->ln1_mean, t, N, 0) && make(&a->ln1_rstd, t, N, 0) && make(&a->ln1, t, N, D)
             && make(&a->qkv, t, N, 3 * D) && make(&a->lse, t, N, c->H) && make(&a->att, t, N, D) && make(&a->mid, t, N, D)
             && make(&a->ln2_mean, t, N, 0) && make(&a->ln2_rstd, t, N, 0) && make(&a->ln2, t, N, D) && make(&a->up, t, N, F)
             && make(&a->act, t, N, F);
    }
    ok = ok && make(&m->ids, I32, N, 0) && make(&m->positions, I32, N, 0) && make(&m->labels, I32, N, 0) && make(&m->last, t, N, D)
         && make(&m->lnf_mean, t, N, 0) && make(&m->lnf_rstd, t, N, 0) && make(&m->lnf, t, N, D) && make(&m->logits, t, N, c->V)
         && make(&m->top, t, N, 0) && make(&m->total, t, N, 0) && make(&m->hit, t, N, 0) && make(&m->d_stream, t, N, D)
         && make(&m->d_branch, t, N, D) && make(&m->d_wide, t, N, 3 * D > F ? 3 * D : F) && make(&m->d_attention, t, N, D)
         && make(&m->branch, t, N, D);
    if (!ok) {
        drop_buffers(m);
        return fail(err, ERR_MEMORY, "the one-device model has no memory for %lld sequences of %lld tokens", (long long)B, (long long)S);
    }
    m->B = B;
    m->S = S;
    return OK;
}

void param_init(const struct param_spec *spec, uint64_t seed, enum dtype t, int64_t first, int64_t n, void *out)
{
    const uint64_t stream = random_stream(spec->name);
    for (int64_t i = 0; i < n; i++) {
        double x = spec->mean;
        if (spec->std > 0) x += spec->std * random_normal(seed, stream, (uint64_t)(first + i));
        tensor_set(tensor_1d(out, t, n), i, x);
    }
}

enum error_code gpt2_open(struct gpt2 *m, const struct model_config *c, enum dtype t, uint64_t seed, struct error *err)
{
    enum error_code e = model_config_check(c, err);
    if (e) return e;
    const int n = model_param_count(c);
    *m = (struct gpt2){ .config = *c, .ops = ops_for(t), .params = n, .seed = seed };
    if (m->ops == NULL) return fail(err, ERR_USAGE, "no operations for %s", dtype_name(t));
    m->spec = calloc((size_t)n, sizeof *m->spec);
    m->w = calloc((size_t)n, sizeof *m->w);
    m->g = calloc((size_t)n, sizeof *m->g);
    m->block = calloc((size_t)c->L, sizeof *m->block);
    bool ok = m->spec && m->w && m->g && m->block;
    for (int i = 0; ok && i < n; i++) {
        struct param_spec s = m->spec[i] = model_param(c, i);
        ok = make(&m->w[i], t, s.dim[0], s.dim[1]) && make(&m->g[i], t, s.dim[0], s.dim[1]);
        if (ok) param_init(&s, seed, t, 0, tensor_count(m->w[i]), m->w[i].data);
    }
    if (!ok) {
        gpt2_close(m);
        return fail(err, ERR_MEMORY, "the one-device model %s has no memory for %lld parameters", c->name, (long long)model_elements(c));
    }
    gpt2_zero_gradients(m);
    return OK;
}

void gpt2_close(struct gpt2 *m)
{
    drop_buffers(m);
    for (int i = 0; i < m->params; i++) {
        if (m->w) drop(&m->w[i]);
        if (m->g) drop(&m->g[i]);
    }
    free(m->spec), free(m->w), free(m->g), free(m->block);
    *m = (struct gpt2){ 0 };
}

void gpt2_zero_gradients(struct gpt2 *m)
{
    for (int i = 0; i < m->params; i++) memset(m->g[i].data, 0, tensor_bytes(m->g[i]));
}

double gpt2_gradient_norm(const struct gpt2 *m)
{
    double sum = 0;
    for (int i = 0; i < m->params; i++) sum += m->ops->sum_of_squares(m->g[i]);
    return sqrt(sum);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

/* Announce a tensor that was just computed, each of whose elements summed so many products. */
static void computed(struct gpt2 *m, const char *name, int layer, struct tensor t, int64_t terms)
{
    if (m->observer.see) m->observer.see(m->observer.context, name, layer, false, t, terms);
}

static void computed_gradient(struct gpt2 *m, const char *name, int layer, struct tensor t, int64_t terms)
{
    if (m->observer.see) m->observer.see(m->observer.context, name, layer, true, t, terms);
}

struct dropout dropout_at(double p, uint64_t seed, int layer, const char *where, int64_t row0, int64_t col0, int64_t cols)
{
    char name[64];
    snprintf(name, sizeof name, "dropout.%d.%s", layer, where);
    return (struct dropout){ .p = p, .seed = seed, .stream = random_stream(name), .row0 = row0, .col0 = col0, .cols = cols };
}

static struct attention attention_of(const struct gpt2 *m, int layer)
{
    const struct model_config *c = &m->config;
    return (struct attention){ .S = m->S, .H = c->H, .K = c->H, .A = c->A, .scale = 1 / sqrt((double)c->A),
                               .drop = dropout_at(c->dropout_attention, m->seed, layer, "probabilities", 0, 0, c->H) };
}

static struct dropout residual_dropout(const struct gpt2 *m, int layer, const char *where)
{
    return dropout_at(m->config.dropout_residual, m->seed, layer, where, 0, 0, m->config.D);
}

static void block_forward(struct gpt2 *m, int layer, struct tensor out)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    struct block_activations *a = &m->block[layer];
    const struct tensor *w = &m->w[param_of_block(layer, 0)];

    op->layernorm_forward(a->ln1, a->ln1_mean, a->ln1_rstd, a->in, w[LN1_W], w[LN1_B], c->eps);
    computed(m, "ln_1", layer, a->ln1, c->D);
    op->linear_forward(a->qkv, a->ln1, w[QKV_W], w[QKV_B]);
    computed(m, "attn.qkv", layer, a->qkv, c->D);
    op->attention_forward(a->att, a->lse, a->qkv, attention_of(m, layer));
    computed(m, "attn.heads", layer, a->att, c->A + m->S);
    op->linear_forward(m->branch, a->att, w[PROJ_W], w[PROJ_B]);
    computed(m, "attn.out", layer, m->branch, c->D);
    op->dropout(m->branch, m->branch, residual_dropout(m, layer, "attention"));
    op->add(a->mid, a->in, m->branch);
    computed(m, "mid", layer, a->mid, 1);

    op->layernorm_forward(a->ln2, a->ln2_mean, a->ln2_rstd, a->mid, w[LN2_W], w[LN2_B], c->eps);
    computed(m, "ln_2", layer, a->ln2, c->D);
    op->linear_forward(a->up, a->ln2, w[UP_W], w[UP_B]);
    computed(m, "mlp.up", layer, a->up, c->D);
    op->gelu_forward(a->act, a->up);
    computed(m, "mlp.act", layer, a->act, 1);
    op->linear_forward(m->branch, a->act, w[DOWN_W], w[DOWN_B]);
    computed(m, "mlp.out", layer, m->branch, c->F);
    op->dropout(m->branch, m->branch, residual_dropout(m, layer, "mlp"));
    op->add(out, a->mid, m->branch);
    computed(m, "out", layer, out, 1);
}

static enum error_code take_batch(struct gpt2 *m, const int32_t *ids, const int32_t *labels, struct error *err)
{
    int32_t *const id = m->ids.data, *const position = m->positions.data, *const label = m->labels.data;
    m->counted = 0;
    for (int64_t n = 0; n < m->B * m->S; n++) {
        if (ids[n] < 0 || ids[n] >= m->config.V || (labels[n] != IGNORE_LABEL && (labels[n] < 0 || labels[n] >= m->config.V)))
            return fail(err, ERR_USAGE, "token %lld of the batch is %d, its label %d; the vocabulary is 0 to %lld", (long long)n,
                        (int)ids[n], (int)labels[n], (long long)m->config.V - 1);
        id[n] = ids[n];
        position[n] = (int32_t)(n % m->S);
        label[n] = labels[n];
        m->counted += labels[n] != IGNORE_LABEL;
    }
    return OK;
}

enum error_code gpt2_forward(struct gpt2 *m, const int32_t *ids, const int32_t *labels, int64_t B, int64_t S, double *loss,
                             struct error *err)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const int L = (int)c->L, final = param_final_norm(c);
    if (B < 1 || S < 1 || S > c->S)
        return fail(err, ERR_USAGE, "%lld sequences of %lld tokens; model %s takes 1 to %lld tokens", (long long)B, (long long)S, c->name, (long long)c->S);
    enum error_code e = make_buffers(m, B, S, err);
    if (!e) e = take_batch(m, ids, labels, err);
    if (e) return e;

    struct tensor x = m->block[0].in;
    op->embedding_forward(x, m->ids, m->w[PARAM_WTE], 0, false);
    op->embedding_forward(x, m->positions, m->w[PARAM_WPE], 0, true);
    op->dropout(x, x, dropout_at(c->dropout_embedding, m->seed, -1, "embedding", 0, 0, c->D));
    computed(m, "embedding", -1, x, 1);
    for (int l = 0; l < L; l++) {
        const struct tensor out = l + 1 < L ? m->block[l + 1].in : m->last;
        block_forward(m, l, out);
        partial_forward(m, l, out);
    }

    op->layernorm_forward(m->lnf, m->lnf_mean, m->lnf_rstd, m->last, m->w[final], m->w[final + 1], c->eps);
    computed(m, "ln_f", L, m->lnf, c->D);
    op->linear_forward(m->logits, m->lnf, m->w[param_head(c)], tensor_none);
    computed(m, "logits", L, m->logits, c->D);
    op->cross_entropy_max(m->top, m->logits);
    op->cross_entropy_sums(m->total, m->hit, m->logits, m->top, m->labels, 0);
    *loss = op->cross_entropy_loss(m->total, m->top, m->hit, m->labels, IGNORE_LABEL) / (double)(m->counted ? m->counted : 1);
    return OK;
}

/* ---- backward ------------------------------------------------------------------------------------------------------ */

/* d_stream holds the gradient of the block's output and ends as that of its input. */
static void block_backward(struct gpt2 *m, int layer)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    struct block_activations *a = &m->block[layer];
    const struct tensor *w = &m->w[param_of_block(layer, 0)], *g = &m->g[param_of_block(layer, 0)];
    const int64_t N = m->B * m->S;
    const struct tensor d = m->d_stream, branch = m->d_branch, d_att = m->d_attention;
    const struct tensor d_act = tensor_2d(m->d_wide.data, d.dtype, N, c->F), d_qkv = tensor_2d(m->d_wide.data, d.dtype, N, 3 * c->D);

    op->dropout(branch, d, residual_dropout(m, layer, "mlp"));
    computed_gradient(m, "mlp.out", layer, branch, 1);
    op->linear_backward_weight(g[DOWN_W], g[DOWN_B], branch, a->act);
    op->linear_backward_input(d_act, branch, w[DOWN_W]);
    computed_gradient(m, "mlp.act", layer, d_act, c->D);
    op->gelu_backward_input(d_act, d_act, a->up);
    computed_gradient(m, "mlp.up", layer, d_act, 1);
    op->linear_backward_weight(g[UP_W], g[UP_B], d_act, a->ln2);
    op->linear_backward_input(branch, d_act, w[UP_W]);
    computed_gradient(m, "ln_2", layer, branch, c->F);
    op->layernorm_backward_weight(g[LN2_W], g[LN2_B], branch, a->mid, a->ln2_mean, a->ln2_rstd);
    op->layernorm_backward_input(d_att, branch, a->mid, w[LN2_W], a->ln2_mean, a->ln2_rstd);
    op->add(d, d, d_att);
    computed_gradient(m, "mid", layer, d, c->D);

    op->dropout(branch, d, residual_dropout(m, layer, "attention"));
    computed_gradient(m, "attn.out", layer, branch, 1);
    op->linear_backward_weight(g[PROJ_W], g[PROJ_B], branch, a->att);
    op->linear_backward_input(d_att, branch, w[PROJ_W]);
    computed_gradient(m, "attn.heads", layer, d_att, c->D);
    op->attention_backward_input(d_qkv, d_att, a->att, a->lse, a->qkv, attention_of(m, layer));
    computed_gradient(m, "attn.qkv", layer, d_qkv, c->A + m->S);
    op->linear_backward_weight(g[QKV_W], g[QKV_B], d_qkv, a->ln1);
    op->linear_backward_input(branch, d_qkv, w[QKV_W]);
    computed_gradient(m, "ln_1", layer, branch, 3 * c->D);
    op->layernorm_backward_weight(g[LN1_W], g[LN1_B], branch, a->in, a->ln1_mean, a->ln1_rstd);
    op->layernorm_backward_input(d_att, branch, a->in, w[LN1_W], a->ln1_mean, a->ln1_rstd);
    op->add(d, d, d_att);
    computed_gradient(m, layer == 0 ? "embedding" : "out", layer - 1, d, c->D);
}

void gpt2_backward(struct gpt2 *m)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const int L = (int)c->L, final = param_final_norm(c), head = param_head(c);
    const double scale = 1 / (double)(m->counted ? m->counted : 1);
    const struct tensor d_logits = m->logits;

    op->cross_entropy_backward(d_logits, m->logits, m->total, m->top, m->labels, 0, IGNORE_LABEL, scale);
    computed_gradient(m, "logits", L, d_logits, 1);
    op->linear_backward_weight(m->g[head], tensor_none, d_logits, m->lnf);
    op->linear_backward_input(m->d_branch, d_logits, m->w[head]);
    computed_gradient(m, "ln_f", L, m->d_branch, c->V);
    op->layernorm_backward_weight(m->g[final], m->g[final + 1], m->d_branch, m->last, m->lnf_mean, m->lnf_rstd);
    op->layernorm_backward_input(m->d_stream, m->d_branch, m->last, m->w[final], m->lnf_mean, m->lnf_rstd);
    computed_gradient(m, "out", L - 1, m->d_stream, c->D);
    for (int l = L - 1; l >= 0; l--) {
        partial_backward_begin(m, l);
        block_backward(m, l);
        partial_backward_end(m, l);
    }

    op->dropout(m->d_stream, m->d_stream, dropout_at(c->dropout_embedding, m->seed, -1, "embedding", 0, 0, c->D));
    op->embedding_backward_weight(m->g[PARAM_WTE], m->d_stream, m->ids, 0);
    op->embedding_backward_weight(m->g[PARAM_WPE], m->d_stream, m->positions, 0);
    for (int i = 0; i < m->params; i++) computed_gradient(m, m->spec[i].name, m->spec[i].layer, m->g[i], m->B * m->S);
}
