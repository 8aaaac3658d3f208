/* config_llama.c -- the config.json of a Llama, and of a Mixtral, which is one with a mixture.
 *
 * transformers adds the load-balancing loss to a Mixtral's only if output_router_logits is true, and so do we.  The
 * coefficient of the z loss, which transformers has for other mixtures only, has their key: router_z_loss_coef.
 */
#include "ref/model/config_json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rotary positions ------------------------------------------------------------------------------------------------- */

static enum error_code llama3_scaling(struct rotary *r, const cJSON *object, const char *where, struct error *err)
{
    enum error_code e = json_double(object, where, "low_freq_factor", &r->low_frequency, err);
    if (!e) e = json_double(object, where, "high_freq_factor", &r->high_frequency, err);
    if (!e) e = json_int(object, where, "original_max_position_embeddings", 1, INT32_MAX, &r->original_positions, err);
    return e;
}

/* "rope_type" is the key of newer versions, "type" that of older ones. */
static enum error_code rotary_from_json(struct rotary *r, const cJSON *root, const char *path, struct error *err)
{
    const cJSON *object;
    const char *type;
    enum error_code e = json_has(root, "rope_theta") ? json_double(root, path, "rope_theta", &r->theta, err) : OK;
    if (e || !json_has(root, "rope_scaling")) return e;
    e = json_object(root, path, "rope_scaling", &object, err);
    if (!e) e = json_string(object, path, json_has(object, "rope_type") ? "rope_type" : "type", &type, err);
    if (e) return e;
    if (strcmp(type, "default") == 0) return OK;
    r->scaling = strcmp(type, "linear") == 0 ? SCALING_LINEAR : SCALING_LLAMA3;
    if (r->scaling == SCALING_LLAMA3 && strcmp(type, "llama3") != 0)
        return fail(err, ERR_FORMAT, "%s: rope_scaling is of type \"%.60s\"; Orrery has only \"linear\" and \"llama3\"", path, type);
    e = json_double(object, path, "factor", &r->factor, err);
    return !e && r->scaling == SCALING_LLAMA3 ? llama3_scaling(r, object, path, err) : e;
}

/* transformers warns of a real number that is written like a whole one. */
static bool add_real(cJSON *object, const char *key, double x)
{
    char text[32];
    if (x != floor(x) || fabs(x) >= 1e15) return cJSON_AddNumberToObject(object, key, x) != NULL;
    snprintf(text, sizeof text, "%.1f", x);
    return cJSON_AddRawToObject(object, key, text) != NULL;
}

static bool rotary_to_json(const struct rotary *r, cJSON *root)
{
    bool ok = add_real(root, "rope_theta", r->theta);
    if (r->scaling == SCALING_NONE) return ok;
    const bool llama3 = r->scaling == SCALING_LLAMA3;
    cJSON *object = cJSON_AddObjectToObject(root, "rope_scaling");
    ok = object && cJSON_AddStringToObject(object, llama3 ? "rope_type" : "type", llama3 ? "llama3" : "linear") && add_real(object, "factor", r->factor) && ok;
    if (!llama3) return ok;
    return add_real(object, "low_freq_factor", r->low_frequency) && add_real(object, "high_freq_factor", r->high_frequency)
           && cJSON_AddNumberToObject(object, "original_max_position_embeddings", (double)r->original_positions) && ok;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------- */

static enum error_code refuse_the_rest(const struct model_config *c, const cJSON *root, const char *path, struct error *err)
{
    int64_t n;
    enum error_code e = json_only(root, path, "hidden_act", "silu", err);
    if (!e) e = json_only_bool(root, path, "attention_bias", false, err);
    if (!e) e = json_only_bool(root, path, "mlp_bias", false, err);
    if (!e && json_has(root, "head_dim")) {
        e = json_int(root, path, "head_dim", 1, INT32_MAX, &n, err);
        if (!e && n * c->H != c->D)
            e = fail(err, ERR_FORMAT, "%s: head_dim is %lld; Orrery has only hidden_size / num_attention_heads", path, (long long)n);
    }
    if (!e && json_has(root, "sliding_window")) {
        e = json_int(root, path, "sliding_window", 1, INT32_MAX, &n, err);
        if (!e && n < c->S)
            e = fail(err, ERR_FORMAT, "%s: sliding_window is %lld, shorter than max_position_embeddings; Orrery attends to all tokens before", path,
                     (long long)n);
    }
    if (!e && json_has(root, "pretraining_tp")) {
        e = json_int(root, path, "pretraining_tp", 1, INT32_MAX, &n, err);
        if (!e && n != 1) e = fail(err, ERR_FORMAT, "%s: pretraining_tp is %lld; Orrery has only 1", path, (long long)n);
    }
    return e;
}

static enum error_code read_common(struct model_config *c, const cJSON *root, const char *path, struct error *err)
{
    const struct json_whole_key sizes[] = {
        { "max_position_embeddings", &c->S }, { "hidden_size", &c->D }, { "num_attention_heads", &c->H }, { "num_hidden_layers", &c->L },
        { "vocab_size", &c->V }, { "intermediate_size", &c->F },
    };
    const struct json_real_key reals[] = {
        { "rms_norm_eps", &c->eps }, { "initializer_range", &c->init_std }, { "attention_dropout", &c->dropout_attention },
    };
    enum error_code e = json_sizes(root, path, sizes, (int)(sizeof sizes / sizeof *sizes), err);
    if (!e) e = json_reals(root, path, reals, (int)(sizeof reals / sizeof *reals), err);
    c->K = c->H;
    if (!e && json_has(root, "num_key_value_heads")) e = json_int(root, path, "num_key_value_heads", 1, INT32_MAX, &c->K, err);
    if (!e && json_has(root, "tie_word_embeddings")) e = json_bool(root, path, "tie_word_embeddings", &c->tied, err);
    if (!e) e = rotary_from_json(&c->rotary, root, path, err);
    return e ? e : refuse_the_rest(c, root, path, err);
}

enum error_code llama_from_json(struct model_config *c, const cJSON *root, const char *path, struct error *err)
{
    *c = (struct model_config){ .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_SWIGLU, .rotary = { .theta = 10000 },
                                .eps = 1e-6, .init_std = 0.02 };                                /* LlamaConfig's own defaults */
    return read_common(c, root, path, err);
}

enum error_code mixtral_from_json(struct model_config *c, const cJSON *root, const char *path, struct error *err)
{
    struct mixture_config *m = &c->mixture;
    bool balanced = false;
    *c = (struct model_config){ .norm = NORM_RMS, .positions = POSITIONS_ROTARY, .mlp = MLP_MIXTURE, .rotary = { .theta = 1e6 },
                                .eps = 1e-5, .init_std = 0.02,                                  /* MixtralConfig's */
                                .mixture = { .E = 8, .k = 2, .normalized = true, .balance_coefficient = 0.001 } };
    const struct json_real_key reals[] = { { "router_aux_loss_coef", &m->balance_coefficient }, { "router_z_loss_coef", &m->z_coefficient } };
    double noise = 0;
    const struct json_real_key jitter[] = { { "router_jitter_noise", &noise } };
    enum error_code e = json_reals(root, path, reals, 2, err);
    if (!e) e = json_reals(root, path, jitter, 1, err);
    if (!e && noise != 0) e = fail(err, ERR_FORMAT, "%s: router_jitter_noise is %g; Orrery has only 0", path, noise);
    if (!e && json_has(root, "num_local_experts")) e = json_int(root, path, "num_local_experts", 1, INT32_MAX, &m->E, err);
    if (!e && json_has(root, "num_experts_per_tok")) e = json_int(root, path, "num_experts_per_tok", 1, INT32_MAX, &m->k, err);
    if (!e && json_has(root, "norm_topk_prob")) e = json_bool(root, path, "norm_topk_prob", &m->normalized, err);
    if (!e && json_has(root, "output_router_logits")) e = json_bool(root, path, "output_router_logits", &balanced, err);
    if (!balanced) m->balance_coefficient = 0;
    return e ? e : read_common(c, root, path, err);
}

/* ---- writing --------------------------------------------------------------------------------------------------------------- */

static bool mixture_to_json(const struct mixture_config *m, cJSON *root)
{
    const struct { const char *key; double value; } number[] = {
        { "num_local_experts", (double)m->E }, { "num_experts_per_tok", (double)m->k }, { "router_aux_loss_coef", m->balance_coefficient },
        { "router_z_loss_coef", m->z_coefficient },
    };
    bool ok = true;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    if (!m->normalized) ok = cJSON_AddFalseToObject(root, "norm_topk_prob") && ok;      /* transformers knows only true */
    return cJSON_AddBoolToObject(root, "output_router_logits", m->balance_coefficient > 0) && cJSON_AddNullToObject(root, "sliding_window") && ok;
}

bool llama_to_json(const struct model_config *c, cJSON *root)
{
    const struct { const char *key; double value; } number[] = {
        { "max_position_embeddings", (double)c->S }, { "hidden_size", (double)c->D }, { "num_attention_heads", (double)c->H },
        { "num_key_value_heads", (double)c->K }, { "num_hidden_layers", (double)c->L }, { "vocab_size", (double)c->V },
        { "intermediate_size", (double)c->F }, { "rms_norm_eps", c->eps }, { "initializer_range", c->init_std },
        { "attention_dropout", c->dropout_attention },
    };
    bool ok = cJSON_AddStringToObject(root, "hidden_act", "silu") != NULL;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    ok = rotary_to_json(&c->rotary, root) && (c->mlp != MLP_MIXTURE || mixture_to_json(&c->mixture, root)) && ok;
    return cJSON_AddBoolToObject(root, "tie_word_embeddings", c->tied) && ok;
}
