/* transformer.c -- opens and closes the one-device model: its memory, weights and gradients.  Files of verify/,
 * ref/golden/, check/, run/ and other rooms call these functions.  ERR_USAGE is for a format without operations;
 * ERR_MEMORY, after which nothing is left to close. */
#include "ref/model/adapters.h"
#include "ref/model/attention_mask.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/rotary.h"
#include "ref/model/transformer_parts.h"
#include "ref/numeric/exact_sum.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool transformer_make(struct tensor *tensor, enum dtype dtype, int64_t rows, int64_t cols)
{
    *tensor = cols ? tensor_2d(NULL, dtype, rows, cols) : tensor_1d(NULL, dtype, rows);
    /* aligned_alloc takes whole multiples of the alignment, 64 bytes. */
    size_t bytes = (tensor_bytes(*tensor) + 63) / 64 * 64;
    tensor->data = aligned_alloc(64, bytes ? bytes : 64);
    return tensor->data != NULL;
}

static void transformer_drop(struct tensor *tensor) { free(tensor->data); *tensor = tensor_none; }

static void drop_block(struct block_activations *activations)
{
    struct tensor *const all[] = { &activations->in,      &activations->ln1_mean, &activations->ln1_rstd,
                                  &activations->ln1,      &activations->qkv,
                                   &activations->lse,     &activations->att,      &activations->mid,
                                       &activations->ln2_mean, &activations->ln2_rstd,
                                   &activations->ln2,     &activations->up,       &activations->act,
                                       &activations->router,   &activations->weights,
                                   &activations->experts, &activations->order,    &activations->counts,
                                       &activations->rows,     &activations->results,
                                   &activations->shared,  &activations->gate,     &activations->shared_up,
                                       &activations->shared_act,
                                   &activations->dense_up, &activations->dense_act, &activations->shortcut,
                                       &activations->normed, &activations->head_rstd,
                                   &activations->attention_out, &activations->feed_out, &activations->after1,
                                       &activations->after1_rstd,
                                   &activations->after2, &activations->after2_rstd,
                                   &activations->q_latent, &activations->q_rstd,  &activations->q_normed,
                                       &activations->queries,  &activations->kv_latent,
                                   &activations->kv_only, &activations->kv_rstd,  &activations->kv_normed,
                                       &activations->expanded, &activations->narrow };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) transformer_drop(all[i]);
}

/* With a shortcut, the one after the last layer's is empty. */
static int64_t block_count(const struct model_config *config)
{
    return config->shortcut ? second_block(config, config->L) : config->L;
}

static void drop_buffers(struct transformer *model)
{
    for (int64_t l = 0; model->block && l < block_count(&model->config); l++) drop_block(&model->block[l]);
    struct tensor *const all[] = { &model->ids,      &model->positions, &model->labels, &model->mask,
                                  &model->last,  &model->lnf_mean,
                                   &model->lnf_rstd, &model->lnf,       &model->logits, &model->top,
                                       &model->total, &model->hit,
                                   &model->d_stream, &model->d_branch,  &model->d_qkv,  &model->d_attention,
                                       &model->d_up,  &model->d_act,
                                   &model->d_router, &model->d_weights, &model->d_rows, &model->d_norm,
                                       &model->branch,
                                   &model->rotary,   &model->d_gate,    &model->d_shared, &model->d_shared_up,
                                       &model->d_shared_act,
                                   &model->prefix_at, &model->prefix_out, &model->prefix_lse, &model->prefix_sums,
                                       &model->beside,
                                   &model->mean_up,  &model->mean_act, &model->stream_logits, &model->stream_weights,
                                       &model->mean,
                                   &model->local_rotary, &model->capped,
                                   &model->d_shortcut, &model->d_step,   &model->d_q_latent, &model->d_queries,
                                       &model->d_kv_latent,
                                   &model->d_kv_normed, &model->d_expanded, &model->d_narrow, &model->d_q_normed,
                                   &model->d_kv_only };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) transformer_drop(all[i]);
    model->B = model->S = 0;
}

/* Whether some layers have experts. */
static bool has_experts(const struct transformer *model) { return model->config.mlp == MLP_MIXTURE; }

/* The feed-forward of a layer for N tokens: rows, and the width of its inner side. */
static int64_t feed_rows(const struct transformer *model, int64_t layer, int64_t N)
{
    return is_mixture(model, layer) ? N * model->config.mixture.k : N;
}
static int64_t feed_width(const struct transformer *model, int64_t layer)
{
    return layer_set_has(&model->config.dense.at, layer) ? model->config.dense.F : model->config.F;
}

static bool make_shared(const struct transformer *model, struct block_activations *activations, int64_t N)
{
    const int64_t F = model->config.mixture.shared;
    const enum dtype t = model->ops->dtype;
    return transformer_make(&activations->shared_up, t, N, 2 * F) && transformer_make(&activations->shared_act, t, N, F)
           && transformer_make(&activations->shared, t, N, model->config.D) &&
           (!model->config.mixture.shared_gate || transformer_make(&activations->gate, dtype_wide(t), N, 1));
}

static bool make_shared_backward(struct transformer *model, int64_t N)
{
    const int64_t F = model->config.mixture.shared;
    const enum dtype t = model->ops->dtype;
    return transformer_make(&model->d_shared_up, t, N, 2 * F) && transformer_make(&model->d_shared_act, t, N, F) &&
           transformer_make(&model->d_shared, t, N, model->config.D) &&
           (!model->config.mixture.shared_gate || transformer_make(&model->d_gate, dtype_wide(t), N, 1));
}

static bool make_mixture(const struct transformer *model, struct block_activations *activations, int64_t N)
{
    const struct model_config *c = &model->config;
    const enum dtype t = model->ops->dtype, few = dtype_wide(t);
    const int64_t E = c->mixture.E, k = c->mixture.k;
    return transformer_make(&activations->router, few, N, mixture_columns(&c->mixture))
           && transformer_make(&activations->weights, few, N, k) &&
           transformer_make(&activations->experts, I32, N, k) &&
           transformer_make(&activations->order, I32, N * k, 0) && transformer_make(&activations->counts, I32, E, 0)
               && transformer_make(&activations->rows, t, N * k, c->D) &&
           transformer_make(&activations->results, t, N * k, c->D)
               && (c->mixture.shared == 0 || make_shared(model, activations, N));
}

static bool make_latent(const struct model_config *config, struct block_activations *activations, enum dtype dtype,
                        enum dtype few, int64_t N)
{
    const struct latent_config *l = &config->latent;
    return (l->q == 0 ||
            (transformer_make(&activations->q_latent, dtype, N, l->q)
             && transformer_make(&activations->q_normed, dtype, N, l->q)
                 && transformer_make(&activations->q_rstd, few, N, 0))) &&
           transformer_make(&activations->queries, dtype, N, heads_width(config))
               && transformer_make(&activations->kv_latent, dtype, N, kv_latent_width(config)) &&
           transformer_make(&activations->kv_only, dtype, N, l->kv)
               && transformer_make(&activations->kv_normed, dtype, N, l->kv)
                   && transformer_make(&activations->kv_rstd, few, N, 0) &&
           transformer_make(&activations->expanded, dtype, N, config->H * expanded_width(config))
               && transformer_make(&activations->narrow, dtype, N, values_width(config));
}

static bool make_latent_backward(struct transformer *model, int64_t N)
{
    const struct model_config *c = &model->config;
    const enum dtype t = model->ops->dtype;
    return (c->latent.q == 0 || (transformer_make(&model->d_q_latent, t, N, c->latent.q)
                                 && transformer_make(&model->d_q_normed, t, N, c->latent.q))) &&
           transformer_make(&model->d_queries, t, N, heads_width(c)) &&
           transformer_make(&model->d_kv_latent, t, N, kv_latent_width(c))
               && transformer_make(&model->d_kv_normed, t, N, c->latent.kv) &&
           transformer_make(&model->d_kv_only, t, N, c->latent.kv) &&
           transformer_make(&model->d_expanded, t, N, c->H * expanded_width(c))
               && transformer_make(&model->d_narrow, t, N, values_width(c));
}

static bool make_block(const struct transformer *model, int64_t layer, int64_t N)
{
    const struct model_config *c = &model->config;
    const enum dtype t = model->ops->dtype, few = dtype_wide(t);
    struct block_activations *a = &model->block[layer];
    const int64_t D = c->D, R = feed_rows(model, layer, N), F = feed_width(model, layer), up = up_width(c) / c->F;
    const bool second = layer > c->L;
    const bool mean = c->norm == NORM_LAYER;
    return transformer_make(&a->in, t, N, D) && (!mean || transformer_make(&a->ln1_mean, few, N, 0))
           && transformer_make(&a->ln1_rstd, few, N, 0) &&
           transformer_make(&a->ln1, t, N, D) && (!LATENT(c) || make_latent(c, a, t, few, N)) &&
           transformer_make(&a->qkv, t, N, qkv_width(c)) && transformer_make(&a->lse, few, N, c->H) &&
           transformer_make(&a->att, t, N, heads_width(c)) && transformer_make(&a->mid, t, N, D) &&
           (!c->head_norms || (transformer_make(&a->normed, t, N, qkv_width(c)) &&
                               transformer_make(&a->head_rstd, few, N, c->normed_together ? 2 : c->H + c->K))) &&
           ((c->parallel && !c->two_norms) ||
            ((!mean || transformer_make(&a->ln2_mean, few, N, 0)) && transformer_make(&a->ln2_rstd, few, N, 0)
             && transformer_make(&a->ln2, t, N, D))) &&
           (c->norms_at == NORMS_BEFORE ||
            (transformer_make(&a->attention_out, t, N, D) && transformer_make(&a->feed_out, t, N, D)
             && transformer_make(&a->after1, t, N, D) &&
             transformer_make(&a->after1_rstd, few, N, 0) && transformer_make(&a->after2, t, N, D)
                 && transformer_make(&a->after2_rstd, few, N, 0))) &&
           (!c->shortcut || (transformer_make(&a->dense_up, t, N, up_width(c))
                             && transformer_make(&a->dense_act, t, N, c->F) &&
                             transformer_make(&a->shortcut, t, N, D))) &&
           (second || (transformer_make(&a->up, t, R, up * F) && transformer_make(&a->act, t, R, F))) &&
           (second || !is_mixture(model, layer) || make_mixture(model, a, N));
}

static bool make_backward(struct transformer *model, int64_t N)
{
    const struct model_config *c = &model->config;
    const enum dtype t = model->ops->dtype, few = dtype_wide(t);
    const int64_t D = c->D, rows = has_experts(model) ? N * c->mixture.k : N,
                  R = rows * c->F > N * c->dense.F ? rows : (N * c->dense.F + c->F - 1) / c->F;   /* room for both */
    return transformer_make(&model->d_stream, t, N, D) && transformer_make(&model->d_branch, t, N, D)
           && transformer_make(&model->d_step, t, N, D) && transformer_make(&model->d_qkv, t, N, qkv_width(c))
               && transformer_make(&model->d_attention, t, N, heads_width(c)) &&
           transformer_make(&model->d_up, t, R, up_width(c)) && transformer_make(&model->d_act, t, R, c->F) &&
           (!(c->parallel || c->shortcut) || transformer_make(&model->d_norm, t, N, D)) &&
           (!c->shortcut || transformer_make(&model->d_shortcut, t, N, D)) &&
           (!has_experts(model) || (transformer_make(&model->d_router, few, N, mixture_columns(&c->mixture)) &&
                                    transformer_make(&model->d_weights, few, N, c->mixture.k)
                                        && transformer_make(&model->d_rows, t, rows, D))) &&
           (c->mixture.shared == 0 || make_shared_backward(model, N)) && (!LATENT(c) || make_latent_backward(model, N));
}

/* M: rows of the residual stream. */
static bool make_ends(struct transformer *model, int64_t M, int64_t N, int64_t turned)
{
    const struct model_config *c = &model->config;
    const enum dtype t = model->ops->dtype, few = dtype_wide(t);
    return transformer_make(&model->ids, I32, M, 0) && transformer_make(&model->positions, I32, M, 0)
           && transformer_make(&model->labels, I32, N, 0) &&
           transformer_make(&model->mask, I32, N, 2 * attention_mask_ranges(&c->mask)) &&
           transformer_make(&model->last, t, M, c->D) &&
           (c->positions != POSITIONS_ROTARY || transformer_make(&model->rotary, few, turned, rotary_table_width(c))) &&
           (c->local_theta == 0 || transformer_make(&model->local_rotary, few, turned, rotary_table_width(c))) &&
           (c->logit_cap == 0 || transformer_make(&model->capped, t, N, c->V)) &&
           (c->norm != NORM_LAYER || transformer_make(&model->lnf_mean, few, M, 0))
               && transformer_make(&model->lnf_rstd, few, M, 0) &&
           transformer_make(&model->lnf, t, M, c->D) && transformer_make(&model->logits, t, N, c->V)
               && transformer_make(&model->top, few, N, 0) &&
           transformer_make(&model->total, model->config.exact ? F64 : few, N, 0) &&
           transformer_make(&model->hit, model->config.exact ? F64 : few, N, 0)
               && transformer_make(&model->branch, t, M, c->D);
}

static bool make_streams(struct transformer *model, int64_t M, int64_t N, int64_t S)
{
    const struct model_config *c = &model->config;
    const enum dtype t = model->ops->dtype, few = dtype_wide(t);
    const int64_t P = c->streams.P, keys = c->streams.prefix + S;
    if (STREAMS(c) == 1) return true;
    if (c->exact && !transformer_make(&model->prefix_sums, EXACT, M, tensor_cols(model->d_qkv))) return false;
    const bool ok = transformer_make(&model->prefix_at, I32, keys, 0)
        && transformer_make(&model->prefix_out, t, M, heads_width(c)) &&
                    transformer_make(&model->prefix_lse, few, M, c->H)
                        && transformer_make(&model->beside, t, N, P * c->D) &&
                    transformer_make(&model->mean_up, t, N, c->D) && transformer_make(&model->mean_act, t, N, c->D) &&
                    transformer_make(&model->stream_logits, t, N, P)
                        && transformer_make(&model->stream_weights, few, N, P) &&
                    transformer_make(&model->mean, t, N, c->D);
    /* Keys of the prefix have the first positions, and tokens follow. */
    for (int64_t i = 0; ok && i < keys; i++) ((int32_t *)model->prefix_at.data)[i] = (int32_t)i;
    return ok;
}

/* Tokens for which the tables of positions are made. */
static int64_t turned_tokens(const struct transformer *model, int64_t S) { return model->past ? model->past->room : S; }

enum error_code transformer_make_buffers(struct transformer *model, int64_t B, int64_t S, struct error *err)
{
    const bool turns = model->config.positions == POSITIONS_ROTARY;
    if (B == model->B && S == model->S && (!turns || tensor_rows(model->rotary) == turned_tokens(model, S))) return OK;
    drop_buffers(model);
    const int64_t rows = STREAMS(&model->config) * B * S;
    const struct rotary local = model_local_rotary(&model->config);
    bool ok = make_ends(model, rows, B * S, turned_tokens(model, S)) && make_backward(model, rows) &&
              make_streams(model, rows, B * S, S);
    for (int64_t l = 0; ok && l < model->config.L; l++) ok = make_block(model, l, rows);
    for (int64_t l = model->config.L + 1; ok && l < block_count(&model->config); l++) ok = make_block(model, l, rows);
    if (!ok) {
        drop_buffers(model);
        return fail(err, ERR_MEMORY, "the one-device model has no memory for %lld sequences of %lld tokens",
                    (long long)B, (long long)S);
    }
    if (turns) rotary_table(&model->config.rotary, model->rotary);
    if (model->config.local_theta > 0) rotary_table(&local, model->local_rotary);
    model->B = B;
    model->S = S;
    return OK;
}

enum error_code transformer_open(struct transformer *model, const struct model_config *config, enum dtype dtype,
                                 uint64_t seed, struct error *err)
{
    enum error_code e = model_config_check(config, err);
    if (e) return e;
    const int n = model_param_count(config);
    *model = (struct transformer){ .config = *config, .ops = ops_of(dtype, config->exact), .params = n, .seed = seed,
                                  .loss_scale = 1 };
    if (model->ops == NULL) return fail(err, ERR_USAGE, "no operations for %s%s", dtype_name(dtype),
                                         config->exact ? " with exact sums" : "");
    model->spec = calloc((size_t)n, sizeof *model->spec);
    model->w = calloc((size_t)n, sizeof *model->w);
    model->g = calloc((size_t)n, sizeof *model->g);
    model->block = calloc((size_t)block_count(config), sizeof *model->block);
    const int64_t columns = mixture_columns(&config->mixture);
    model->router_bias = calloc((size_t)(config->L * columns) + 1, sizeof *model->router_bias);
    model->router_choices = calloc((size_t)(config->L * columns) + 1, sizeof *model->router_choices);
    bool ok = model->spec && model->w && model->g && model->block && model->router_bias && model->router_choices;
    for (int i = 0; ok && i < n; i++) {
        struct param_spec s = model->spec[i] = model_param(config, i);
        ok = transformer_make(&model->w[i], dtype, s.dim[0], s.dim[1])
            && transformer_make(&model->g[i], config->exact ? EXACT : dtype, s.dim[0], s.dim[1]);
        if (ok) param_init(&s, seed, dtype, 0, tensor_count(model->w[i]), model->w[i].data);
    }
    ok = ok && adapters_open(model);
    if (!ok) {
        transformer_close(model);
        return fail(err, ERR_MEMORY, "the one-device model %s has no memory for %lld parameters", config->name,
                    (long long)model_elements(config));
    }
    transformer_zero_gradients(model);
    return OK;
}

enum error_code transformer_keep_gradients_in(struct transformer *model, enum dtype dtype, struct error *err)
{
    for (int i = 0; i < model->params; i++) {
        struct tensor g;
        if (!transformer_make(&g, dtype, model->spec[i].dim[0], model->spec[i].dim[1]))
            return fail(err, ERR_MEMORY, "no memory for gradients of %s in %s", model->spec[i].name, dtype_name(dtype));
        transformer_drop(&model->g[i]);
        model->g[i] = g;
    }
    transformer_zero_gradients(model);
    return OK;
}

void transformer_close(struct transformer *model)
{
    drop_buffers(model);
    adapters_close(model);
    for (int i = 0; i < model->params; i++) {
        if (model->w) transformer_drop(&model->w[i]);
        if (model->g) transformer_drop(&model->g[i]);
    }
    free(model->spec), free(model->w), free(model->g), free(model->block), free(model->router_sums),
        free(model->router_slope);
    free(model->router_rows);
    free(model->router_bias), free(model->router_choices), free(model->own_divisors);
    *model = (struct transformer){ 0 };
}

void transformer_zero_gradients(struct transformer *model)
{
    for (int i = 0; i < model->params; i++) memset(model->g[i].data, 0, tensor_bytes(model->g[i]));
}

double transformer_norm_with(const struct transformer *model, const struct tensor beside[], int count)
{
    double sum = 0;
    if (model->config.exact) {
        /* As on devices, the sum of squares of exact sums is exact, too. */
        struct exact_sum squares = { .infinite = 0 };
        for (int i = 0; i < model->params; i++) exact_add_squares(&squares, model->g[i]);
        for (int i = 0; i < count; i++) exact_add_squares(&squares, beside[i]);
        return sqrt(exact_value(&squares));
    }
    for (int i = 0; i < model->params; i++) sum += ops_squares(model->ops, model->g[i]);
    for (int i = 0; i < count; i++) sum += ops_squares(model->ops, beside[i]);
    return sqrt(sum);
}

double transformer_gradient_norm(const struct transformer *model) { return transformer_norm_with(model, NULL, 0); }
