/* predictor.c -- computes a layer that predicts one token more.  serve/proposer.c calls.  Errors: ERR_PLAN, ERR_MEMORY,
 * ERR_USAGE of tokens; those of reading weights. */
#include "ref/model/predictor.h"
#include "ref/model/naming.h"
#include "ref/model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool predictor_serves(const struct model_config *config) { return config->family->predicts; }

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* The model with the module as one more layer, which is never dense: parameters have their names in this one. */
static struct model_config with_module(const struct model_config *config, int64_t layers)
{
    struct model_config c = *config;
    c.L = layers + 1;
    return c;
}

static void rename_end(char *name, size_t size, size_t end, const char *to)
{
    const size_t kept = strlen(name) - end;
    snprintf(name + kept, size - kept, "%s", to);
}

/* A parameter of the last layer that no other layer has: its first norm's, with another name and shape. */
static struct param_spec param_beside(const struct model_config *whole, const char *name, int64_t rows, int64_t cols)
{
    struct param_spec s = model_param(whole, param_of_layer(whole, whole->L - 1));
    const size_t end = strlen(naming_of(whole)->of_block[LN1_W].whole);
    rename_end(s.name, sizeof s.name, end, name);
    rename_end(s.part[0].name, sizeof s.part[0].name, end, name);
    s.dim[0] = s.part[0].rows = rows, s.dim[1] = cols;
    if (cols > 0) s.ndim = 2, s.mean = 0, s.std = whole->init_std;
    return s;
}

static void name_params(struct predictor *predictor, const struct model_config *config)
{
    const struct model_config whole = with_module(config, config->L), *const one = &predictor->block.config;
    const int first = param_of_layer(one, 0), end = param_of_layer(one, 1),
              there = param_of_layer(&whole, config->L);
    predictor->spec[EMBEDDING_NORM] = param_beside(&whole, "enorm.weight", config->D, 0);
    predictor->spec[HIDDEN_NORM] = param_beside(&whole, "hnorm.weight", config->D, 0);
    predictor->spec[PROJECTION] = param_beside(&whole, "eh_proj.weight", config->D, 2 * config->D);
    predictor->spec[MODEL_NORM] = model_param(config, param_final_norm(config));
    for (int i = first; i < end; i++) predictor->block.spec[i] = model_param(&whole, there + i - first);
}

static enum error_code read_param(const struct weights *weights, const struct param_spec *spec, struct tensor w,
                                  struct error *err)
{
    const int64_t start[2] = { 0 };
    return weights_read_box(weights, spec, "", start, spec->dim, w.dtype, w.data, err);
}

/* The module's own copy of a parameter, or else the model's. */
static enum error_code read_copy(struct predictor *predictor, const struct weights *weights, int param,
                                 const struct model_config *whole, const char *name, struct error *err)
{
    const struct param_spec *const shared = &predictor->block.spec[param];
    const struct param_spec own = param_beside(whole, name, shared->dim[0], shared->dim[1]);
    return read_param(weights, weights_have(weights, own.part[0].name) ? &own : shared, predictor->block.w[param], err);
}

enum error_code predictor_read(struct predictor *predictor, const struct weights *weights, struct error *err)
{
    const struct transformer *const block = &predictor->block;
    const struct model_config *const one = &block->config;
    const int first = param_of_layer(one, 0), end = param_of_layer(one, 1);
    const int64_t layer = block->spec[first].layer;
    const struct model_config whole = with_module(one, layer), more = with_module(one, layer + 1);
    const struct param_spec norm = param_beside(&whole, "shared_head.norm.weight", one->D, 0),
                            second = param_beside(&more, "eh_proj.weight", one->D, 2 * one->D),
                            bias = model_router_bias(&whole, layer);
    enum error_code e = OK;
    if (weights_have(weights, second.part[0].name))
        return fail(err, ERR_FORMAT, "there is a second layer that predicts a further token, %s; one is served",
                    second.part[0].name);
    for (int i = 0; i < PREDICTOR_PARAMS && !e; i++)
        e = read_param(weights, &predictor->spec[i], predictor->w[i], err);
    for (int i = first; i < end && !e; i++) e = read_param(weights, &block->spec[i], block->w[i], err);
    if (!e) e = read_param(weights, &norm, block->w[param_final_norm(one)], err);
    if (!e) e = read_copy(predictor, weights, PARAM_WTE, &whole, "embed_tokens.weight", err);
    if (!e && !one->tied) e = read_copy(predictor, weights, param_head(one), &whole, "shared_head.head.weight", err);
    if (!e && bias.ndim > 0)
        e = read_param(weights, &bias, tensor_1d(block->router_bias, F64, bias.dim[0]), err);
    return e;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool predictor_make(struct tensor *tensor, enum dtype dtype, int64_t rows, int64_t cols)
{
    free(tensor->data);
    *tensor = cols ? tensor_2d(NULL, dtype, rows, cols) : tensor_1d(NULL, dtype, rows);
    tensor->data = malloc(tensor_bytes(*tensor) + 1);
    return tensor->data != NULL;
}

static enum error_code make_room(struct predictor *predictor, int64_t rows, struct error *err)
{
    const enum dtype t = predictor->block.ops->dtype;
    const int64_t D = predictor->block.config.D;
    if (rows <= predictor->room) return OK;
    predictor->room = 0;
    free(predictor->row);
    predictor->row = malloc((size_t)rows * sizeof *predictor->row);
    const bool ok = predictor->row && predictor_make(&predictor->e, t, rows, D) &&
                    predictor_make(&predictor->e_normed, t, rows, D) &&
                    predictor_make(&predictor->h_normed, t, rows, D) &&
                    predictor_make(&predictor->joined, t, rows, 2 * D) && predictor_make(&predictor->x, t, rows, D) &&
                    predictor_make(&predictor->rstd, dtype_wide(t), rows, 0);
    if (!ok) return fail(err, ERR_MEMORY, "no memory for %lld rows of a layer that predicts", (long long)rows);
    for (int64_t n = 0; n < rows; n++) predictor->row[n] = (int32_t)n;
    predictor->room = rows;
    return OK;
}

void predictor_close(struct predictor *predictor)
{
    struct tensor *const all[] = { &predictor->e, &predictor->e_normed, &predictor->h_normed, &predictor->joined,
                                   &predictor->x, &predictor->rstd };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
    for (int i = 0; i < PREDICTOR_PARAMS; i++) free(predictor->w[i].data);
    free(predictor->row);
    if (predictor->block.params) transformer_close(&predictor->block);
    *predictor = (struct predictor){ .room = 0 };
}

enum error_code predictor_open(struct predictor *predictor, const struct model_config *config, enum dtype dtype,
                               uint64_t seed, struct error *err)
{
    struct model_config one = *config;
    one.L = 1, one.dense = (struct dense_layers){ .F = 0 };
    one.dropout_embedding = one.dropout_residual = one.dropout_attention = 0;
    *predictor = (struct predictor){ .room = 0 };
    const enum error_code e = transformer_open(&predictor->block, &one, dtype, seed, err);
    if (e) return e;
    struct transformer *const block = &predictor->block;
    name_params(predictor, config);
    /* Layer 0 of a model with this seed has other weights than its layer L. */
    for (int i = param_of_layer(&one, 0); i < param_of_layer(&one, 1); i++)
        param_init(&block->spec[i], seed, dtype, 0, tensor_count(block->w[i]), block->w[i].data);
    for (int i = 0; i < PREDICTOR_PARAMS; i++) {
        const struct param_spec *const s = &predictor->spec[i];
        if (!predictor_make(&predictor->w[i], dtype, s->dim[0], s->dim[1])) {
            predictor_close(predictor);
            return fail(err, ERR_MEMORY, "no memory for a layer that predicts");
        }
        param_init(s, seed, dtype, 0, tensor_count(predictor->w[i]), predictor->w[i].data);
    }
    return OK;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void norm_rows(struct predictor *predictor, struct tensor Y, struct tensor X, enum predictor_param param)
{
    const struct transformer *const block = &predictor->block;
    struct tensor rstd = predictor->rstd;
    rstd.dim[0] = tensor_rows(X);
    block->ops->rmsnorm_forward(Y, rstd, X, predictor->w[param], norm_base(&block->config), block->config.eps);
}

enum error_code predictor_norm(struct predictor *predictor, struct tensor H, struct tensor stream, struct error *err)
{
    const int64_t n = tensor_rows(stream);
    const enum error_code e = make_room(predictor, n, err);
    if (e) return e;
    memcpy(predictor->e.data, stream.data, tensor_bytes(stream));
    norm_rows(predictor, H, tensor_rows_of(predictor->e, 0, n), MODEL_NORM);
    return OK;
}

/* x [n,D] = W [norm(e); norm(h)]. */
static void join_rows(struct predictor *predictor, struct tensor hidden, const int32_t *next, int64_t n)
{
    const struct ops *const op = predictor->block.ops;
    const struct tensor e = tensor_rows_of(predictor->e, 0, n), e_normed = tensor_rows_of(predictor->e_normed, 0, n),
                        h_normed = tensor_rows_of(predictor->h_normed, 0, n);
    const size_t half = (size_t)predictor->block.config.D * dtype_size(op->dtype);
    char *const joined = predictor->joined.data;
    op->embedding_forward(e, tensor_1d((void *)next, I32, n), predictor->block.w[PARAM_WTE], 0, false);
    norm_rows(predictor, e_normed, e, EMBEDDING_NORM);
    norm_rows(predictor, h_normed, hidden, HIDDEN_NORM);
    for (size_t i = 0; i < (size_t)n; i++) {
        memcpy(joined + 2 * i * half, (const char *)e_normed.data + i * half, half);
        memcpy(joined + (2 * i + 1) * half, (const char *)h_normed.data + i * half, half);
    }
    op->linear_forward(tensor_rows_of(predictor->x, 0, n), tensor_rows_of(predictor->joined, 0, n),
                       predictor->w[PROJECTION], tensor_none);
}

enum error_code predictor_continue(struct predictor *predictor, struct past *past, struct tensor hidden,
                                   const int32_t *next, int64_t n, struct error *err)
{
    struct transformer *const block = &predictor->block;
    for (int64_t i = 0; i < n; i++)
        if (next[i] < 0 || next[i] >= block->config.V)
            return fail(err, ERR_USAGE, "token %lld is %d; the vocabulary is 0 to %lld", (long long)i, (int)next[i],
                        (long long)block->config.V - 1);
    enum error_code e = make_room(predictor, n, err);
    if (e) return e;
    join_rows(predictor, hidden, next, n);
    /* Each row of the block's embedding gives way to x. */
    block->patch = predictor->row, block->patches = tensor_rows_of(predictor->x, 0, n);
    e = transformer_continue(block, past, next, n, err);
    block->patch = NULL, block->patches = tensor_none;
    return e;
}
