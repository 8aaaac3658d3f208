/* transformer.c -- the one-device model's memory and weights. */
#include "ref/model/rotary.h"
#include "ref/model/transformer_parts.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool make(struct tensor *t, enum dtype dtype, int64_t rows, int64_t cols)
{
    *t = cols ? tensor_2d(NULL, dtype, rows, cols) : tensor_1d(NULL, dtype, rows);
    /* aligned_alloc takes whole multiples of the alignment, 64 bytes. */
    size_t bytes = (tensor_bytes(*t) + 63) / 64 * 64;
    t->data = aligned_alloc(64, bytes ? bytes : 64);
    return t->data != NULL;
}

static void drop(struct tensor *t) { free(t->data); *t = tensor_none; }

static void drop_block(struct block_activations *a)
{
    struct tensor *const all[] = { &a->in,      &a->ln1_mean, &a->ln1_rstd, &a->ln1,      &a->qkv,
                                   &a->lse,     &a->att,      &a->mid,      &a->ln2_mean, &a->ln2_rstd,
                                   &a->ln2,     &a->up,       &a->act,      &a->router,   &a->weights,
                                   &a->experts, &a->order,    &a->counts,   &a->rows,     &a->results,
                                   &a->shared,  &a->gate,     &a->shared_up, &a->shared_act,
                                   &a->dense_up, &a->dense_act, &a->shortcut, &a->normed, &a->head_rstd,
                                   &a->attention_out, &a->feed_out, &a->after1, &a->after1_rstd,
                                   &a->after2, &a->after2_rstd,
                                   &a->q_latent, &a->q_rstd,  &a->q_normed, &a->queries,  &a->kv_latent,
                                   &a->kv_only, &a->kv_rstd,  &a->kv_normed, &a->expanded, &a->narrow };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
}

/* With a shortcut, the one after the last layer's is empty. */
static int64_t block_count(const struct model_config *c) { return c->shortcut ? second_block(c, c->L) : c->L; }

static void drop_buffers(struct transformer *m)
{
    for (int64_t l = 0; m->block && l < block_count(&m->config); l++) drop_block(&m->block[l]);
    struct tensor *const all[] = { &m->ids,      &m->positions, &m->labels, &m->mask,        &m->last,  &m->lnf_mean,
                                   &m->lnf_rstd, &m->lnf,       &m->logits, &m->top,         &m->total, &m->hit,
                                   &m->d_stream, &m->d_branch,  &m->d_qkv,  &m->d_attention, &m->d_up,  &m->d_act,
                                   &m->d_router, &m->d_weights, &m->d_rows, &m->d_norm,      &m->branch,
                                   &m->rotary,   &m->d_gate,    &m->d_shared, &m->d_shared_up, &m->d_shared_act,
                                   &m->prefix_at, &m->prefix_out, &m->prefix_lse, &m->beside,
                                   &m->mean_up,  &m->mean_act, &m->stream_logits, &m->stream_weights, &m->mean,
                                   &m->local_rotary, &m->capped,
                                   &m->d_shortcut, &m->d_step,   &m->d_q_latent, &m->d_queries, &m->d_kv_latent,
                                   &m->d_kv_normed, &m->d_expanded, &m->d_narrow, &m->d_q_normed,
                                   &m->d_kv_only };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
    m->B = m->S = 0;
}

/* Whether some layers have experts. */
static bool has_experts(const struct transformer *m) { return m->config.mlp == MLP_MIXTURE; }

/* The feed-forward of a layer for N tokens: rows, and the width of its inner side. */
static int64_t feed_rows(const struct transformer *m, int64_t layer, int64_t N)
{
    return is_mixture(m, layer) ? N * m->config.mixture.k : N;
}
static int64_t feed_width(const struct transformer *m, int64_t layer)
{
    return layer_set_has(&m->config.dense.at, layer) ? m->config.dense.F : m->config.F;
}

static bool make_shared(const struct transformer *m, struct block_activations *a, int64_t N)
{
    const int64_t F = m->config.mixture.shared;
    const enum dtype t = m->ops->dtype;
    return make(&a->shared_up, t, N, 2 * F) && make(&a->shared_act, t, N, F) && make(&a->shared, t, N, m->config.D) &&
           (!m->config.mixture.shared_gate || make(&a->gate, dtype_wide(t), N, 1));
}

static bool make_shared_backward(struct transformer *m, int64_t N)
{
    const int64_t F = m->config.mixture.shared;
    const enum dtype t = m->ops->dtype;
    return make(&m->d_shared_up, t, N, 2 * F) && make(&m->d_shared_act, t, N, F) &&
           make(&m->d_shared, t, N, m->config.D) &&
           (!m->config.mixture.shared_gate || make(&m->d_gate, dtype_wide(t), N, 1));
}

static bool make_mixture(const struct transformer *m, struct block_activations *a, int64_t N)
{
    const struct model_config *c = &m->config;
    const enum dtype t = m->ops->dtype, few = dtype_wide(t);
    const int64_t E = c->mixture.E, k = c->mixture.k;
    return make(&a->router, few, N, mixture_columns(&c->mixture)) && make(&a->weights, few, N, k) &&
           make(&a->experts, I32, N, k) &&
           make(&a->order, I32, N * k, 0) && make(&a->counts, I32, E, 0) && make(&a->rows, t, N * k, c->D) &&
           make(&a->results, t, N * k, c->D) && (c->mixture.shared == 0 || make_shared(m, a, N));
}

static bool make_latent(const struct model_config *c, struct block_activations *a, enum dtype t, enum dtype few,
                        int64_t N)
{
    const struct latent_config *l = &c->latent;
    return (l->q == 0 ||
            (make(&a->q_latent, t, N, l->q) && make(&a->q_normed, t, N, l->q) && make(&a->q_rstd, few, N, 0))) &&
           make(&a->queries, t, N, heads_width(c)) && make(&a->kv_latent, t, N, kv_latent_width(c)) &&
           make(&a->kv_only, t, N, l->kv) && make(&a->kv_normed, t, N, l->kv) && make(&a->kv_rstd, few, N, 0) &&
           make(&a->expanded, t, N, c->H * expanded_width(c)) && make(&a->narrow, t, N, values_width(c));
}

static bool make_latent_backward(struct transformer *m, int64_t N)
{
    const struct model_config *c = &m->config;
    const enum dtype t = m->ops->dtype;
    return (c->latent.q == 0 || (make(&m->d_q_latent, t, N, c->latent.q) && make(&m->d_q_normed, t, N, c->latent.q))) &&
           make(&m->d_queries, t, N, heads_width(c)) &&
           make(&m->d_kv_latent, t, N, kv_latent_width(c)) && make(&m->d_kv_normed, t, N, c->latent.kv) &&
           make(&m->d_kv_only, t, N, c->latent.kv) &&
           make(&m->d_expanded, t, N, c->H * expanded_width(c)) && make(&m->d_narrow, t, N, values_width(c));
}

static bool make_block(const struct transformer *m, int64_t layer, int64_t N)
{
    const struct model_config *c = &m->config;
    const enum dtype t = m->ops->dtype, few = dtype_wide(t);
    struct block_activations *a = &m->block[layer];
    const int64_t D = c->D, R = feed_rows(m, layer, N), F = feed_width(m, layer), up = up_width(c) / c->F;
    const bool second = layer > c->L;
    const bool mean = c->norm == NORM_LAYER;
    return make(&a->in, t, N, D) && (!mean || make(&a->ln1_mean, few, N, 0)) && make(&a->ln1_rstd, few, N, 0) &&
           make(&a->ln1, t, N, D) && (!LATENT(c) || make_latent(c, a, t, few, N)) &&
           make(&a->qkv, t, N, qkv_width(c)) && make(&a->lse, few, N, c->H) &&
           make(&a->att, t, N, heads_width(c)) && make(&a->mid, t, N, D) &&
           (!c->head_norms || (make(&a->normed, t, N, qkv_width(c)) &&
                               make(&a->head_rstd, few, N, c->normed_together ? 2 : c->H + c->K))) &&
           (c->parallel ||
            ((!mean || make(&a->ln2_mean, few, N, 0)) && make(&a->ln2_rstd, few, N, 0) && make(&a->ln2, t, N, D))) &&
           (c->norms_at == NORMS_BEFORE ||
            (make(&a->attention_out, t, N, D) && make(&a->feed_out, t, N, D) && make(&a->after1, t, N, D) &&
             make(&a->after1_rstd, few, N, 0) && make(&a->after2, t, N, D) && make(&a->after2_rstd, few, N, 0))) &&
           (!c->shortcut || (make(&a->dense_up, t, N, up_width(c)) && make(&a->dense_act, t, N, c->F) &&
                             make(&a->shortcut, t, N, D))) &&
           (second || (make(&a->up, t, R, up * F) && make(&a->act, t, R, F))) &&
           (second || !is_mixture(m, layer) || make_mixture(m, a, N));
}

static bool make_backward(struct transformer *m, int64_t N)
{
    const struct model_config *c = &m->config;
    const enum dtype t = m->ops->dtype, few = dtype_wide(t);
    const int64_t D = c->D, rows = has_experts(m) ? N * c->mixture.k : N,
                  R = rows * c->F > N * c->dense.F ? rows : (N * c->dense.F + c->F - 1) / c->F;   /* room for both */
    return make(&m->d_stream, t, N, D) && make(&m->d_branch, t, N, D) && make(&m->d_step, t, N, D) &&
           make(&m->d_qkv, t, N, qkv_width(c)) && make(&m->d_attention, t, N, heads_width(c)) &&
           make(&m->d_up, t, R, up_width(c)) && make(&m->d_act, t, R, c->F) &&
           (!(c->parallel || c->shortcut) || make(&m->d_norm, t, N, D)) &&
           (!c->shortcut || make(&m->d_shortcut, t, N, D)) &&
           (!has_experts(m) || (make(&m->d_router, few, N, mixture_columns(&c->mixture)) &&
                                make(&m->d_weights, few, N, c->mixture.k) && make(&m->d_rows, t, rows, D))) &&
           (c->mixture.shared == 0 || make_shared_backward(m, N)) && (!LATENT(c) || make_latent_backward(m, N));
}

/* M: rows of the residual stream. */
static bool make_ends(struct transformer *m, int64_t M, int64_t N, int64_t turned)
{
    const struct model_config *c = &m->config;
    const enum dtype t = m->ops->dtype, few = dtype_wide(t);
    return make(&m->ids, I32, M, 0) && make(&m->positions, I32, M, 0) && make(&m->labels, I32, N, 0) &&
           make(&m->mask, I32, N, 2) && make(&m->last, t, M, c->D) &&
           (c->positions != POSITIONS_ROTARY || make(&m->rotary, few, turned, rotary_table_width(c))) &&
           (c->local_theta == 0 || make(&m->local_rotary, few, turned, rotary_table_width(c))) &&
           (c->logit_cap == 0 || make(&m->capped, t, N, c->V)) &&
           (c->norm != NORM_LAYER || make(&m->lnf_mean, few, M, 0)) && make(&m->lnf_rstd, few, M, 0) &&
           make(&m->lnf, t, M, c->D) && make(&m->logits, t, N, c->V) && make(&m->top, few, N, 0) &&
           make(&m->total, few, N, 0) && make(&m->hit, few, N, 0) && make(&m->branch, t, M, c->D);
}

static bool make_streams(struct transformer *m, int64_t M, int64_t N, int64_t S)
{
    const struct model_config *c = &m->config;
    const enum dtype t = m->ops->dtype, few = dtype_wide(t);
    const int64_t P = c->streams.P, keys = c->streams.prefix + S;
    if (STREAMS(c) == 1) return true;
    const bool ok = make(&m->prefix_at, I32, keys, 0) && make(&m->prefix_out, t, M, heads_width(c)) &&
                    make(&m->prefix_lse, few, M, c->H) && make(&m->beside, t, N, P * c->D) &&
                    make(&m->mean_up, t, N, c->D) && make(&m->mean_act, t, N, c->D) &&
                    make(&m->stream_logits, t, N, P) && make(&m->stream_weights, few, N, P) &&
                    make(&m->mean, t, N, c->D);
    /* Keys of the prefix have the first positions, and tokens follow. */
    for (int64_t i = 0; ok && i < keys; i++) ((int32_t *)m->prefix_at.data)[i] = (int32_t)i;
    return ok;
}

/* Tokens for which the tables of positions are made. */
static int64_t turned_tokens(const struct transformer *m, int64_t S) { return m->past ? m->past->room : S; }

enum error_code transformer_make_buffers(struct transformer *m, int64_t B, int64_t S, struct error *err)
{
    const bool turns = m->config.positions == POSITIONS_ROTARY;
    if (B == m->B && S == m->S && (!turns || tensor_rows(m->rotary) == turned_tokens(m, S))) return OK;
    drop_buffers(m);
    const int64_t rows = STREAMS(&m->config) * B * S;
    const struct rotary local = model_local_rotary(&m->config);
    bool ok = make_ends(m, rows, B * S, turned_tokens(m, S)) && make_backward(m, rows) &&
              make_streams(m, rows, B * S, S);
    for (int64_t l = 0; ok && l < m->config.L; l++) ok = make_block(m, l, rows);
    for (int64_t l = m->config.L + 1; ok && l < block_count(&m->config); l++) ok = make_block(m, l, rows);
    if (!ok) {
        drop_buffers(m);
        return fail(err, ERR_MEMORY, "the one-device model has no memory for %lld sequences of %lld tokens",
                    (long long)B, (long long)S);
    }
    if (turns) rotary_table(&m->config.rotary, m->rotary);
    if (m->config.local_theta > 0) rotary_table(&local, m->local_rotary);
    m->B = B;
    m->S = S;
    return OK;
}

enum error_code transformer_open(struct transformer *m, const struct model_config *c, enum dtype t, uint64_t seed,
                                 struct error *err)
{
    enum error_code e = model_config_check(c, err);
    if (e) return e;
    const int n = model_param_count(c);
    *m = (struct transformer){ .config = *c, .ops = ops_for(t), .params = n, .seed = seed, .loss_scale = 1 };
    if (m->ops == NULL) return fail(err, ERR_USAGE, "no operations for %s", dtype_name(t));
    m->spec = calloc((size_t)n, sizeof *m->spec);
    m->w = calloc((size_t)n, sizeof *m->w);
    m->g = calloc((size_t)n, sizeof *m->g);
    m->block = calloc((size_t)block_count(c), sizeof *m->block);
    const int64_t columns = mixture_columns(&c->mixture);
    m->router_bias = calloc((size_t)(c->L * columns) + 1, sizeof *m->router_bias);
    m->router_choices = calloc((size_t)(c->L * columns) + 1, sizeof *m->router_choices);
    bool ok = m->spec && m->w && m->g && m->block && m->router_bias && m->router_choices;
    for (int i = 0; ok && i < n; i++) {
        struct param_spec s = m->spec[i] = model_param(c, i);
        ok = make(&m->w[i], t, s.dim[0], s.dim[1]) && make(&m->g[i], t, s.dim[0], s.dim[1]);
        if (ok) param_init(&s, seed, t, 0, tensor_count(m->w[i]), m->w[i].data);
    }
    if (!ok) {
        transformer_close(m);
        return fail(err, ERR_MEMORY, "the one-device model %s has no memory for %lld parameters", c->name,
                    (long long)model_elements(c));
    }
    transformer_zero_gradients(m);
    return OK;
}

enum error_code transformer_keep_gradients_in(struct transformer *m, enum dtype t, struct error *err)
{
    for (int i = 0; i < m->params; i++) {
        struct tensor g;
        if (!make(&g, t, m->spec[i].dim[0], m->spec[i].dim[1]))
            return fail(err, ERR_MEMORY, "no memory for gradients of %s in %s", m->spec[i].name, dtype_name(t));
        drop(&m->g[i]);
        m->g[i] = g;
    }
    transformer_zero_gradients(m);
    return OK;
}

void transformer_close(struct transformer *m)
{
    drop_buffers(m);
    for (int i = 0; i < m->params; i++) {
        if (m->w) drop(&m->w[i]);
        if (m->g) drop(&m->g[i]);
    }
    free(m->spec), free(m->w), free(m->g), free(m->block), free(m->router_sums), free(m->router_slope);
    free(m->router_rows);
    free(m->router_bias), free(m->router_choices);
    *m = (struct transformer){ 0 };
}

void transformer_zero_gradients(struct transformer *m)
{
    for (int i = 0; i < m->params; i++) memset(m->g[i].data, 0, tensor_bytes(m->g[i]));
}

double transformer_gradient_norm(const struct transformer *m)
{
    double sum = 0;
    for (int i = 0; i < m->params; i++) sum += ops_squares(m->ops, m->g[i]);
    return sqrt(sum);
}
