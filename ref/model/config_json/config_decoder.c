/* config_decoder.c -- the config.json of a Llama and of its descendants, which differ in the keys that they have and in
 * the options that these set: families/.  ERR_FORMAT names the file, the key and the values that do not fit. */
#include "ref/model/config_json/config_json.h"
#include "ref/model/kinds.h"
#include <math.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------------------------- */

int64_t padding_of(const struct config_reading *reading)
{
    return reading->pad_token == NO_TOKEN ? 0 : reading->pad_token == -1 ? reading->c.V : reading->pad_token + 1;
}

/* Experts by their two names, and shared ones by their number or their width. */
static enum error_code find_experts(struct config_reading *reading, const cJSON *root, const char *path,
                                    struct error *err)
{
    struct mixture_config *m = &reading->c.mixture;
    if (reading->experts && json_has(root, "num_local_experts") && reading->experts != m->E)
        return fail(err, ERR_FORMAT, "%s: num_experts is %lld, num_local_experts %lld", path,
                    (long long)reading->experts, (long long)m->E);
    if (reading->experts) m->E = reading->experts;
    if (reading->shared_experts && m->shared && m->shared != reading->shared_experts * reading->c.F)
        return fail(err, ERR_FORMAT, "%s: n_shared_experts is %lld, and shared_expert_intermediate_size is not so many "
                    "times intermediate_size", path, (long long)reading->shared_experts);
    if (reading->shared_experts) m->shared = reading->shared_experts * reading->c.F;
    return OK;
}

/* Layer l has experts if l + 1 is a multiple of decoder_sparse_step, l is not in mlp_only_layers, and it is not among
 * the first first_k_dense_replace. */
enum error_code dense_layers_finish(struct config_reading *reading, const char *path, struct error *err)
{
    struct dense_layers *d = &reading->c.dense;
    const cJSON *layer;
    if (reading->sparse_step == 0)
        return fail(err, ERR_FORMAT, "%s: decoder_sparse_step is null; it must be at least 1", path);
    for (int64_t l = 0; l < reading->c.L; l++)
        if ((l + 1) % reading->sparse_step != 0 || l < reading->first_dense) layer_set_add(&d->at, l);
    cJSON_ArrayForEach(layer, reading->dense_layers) {
        const double l = cJSON_IsNumber(layer) ? layer->valuedouble : -1;
        if (!(l >= 0 && l < (double)reading->c.L && l == floor(l)))
            return fail(err, ERR_FORMAT, "%s: mlp_only_layers has something else than numbers of layers, from 0 to "
                        "%lld", path, (long long)reading->c.L - 1);
        layer_set_add(&d->at, (int64_t)l);
    }
    if (layer_set_count(&d->at, reading->c.L) > 0 && reading->c.L > LAYER_SET_MOST)
        return fail(err, ERR_FORMAT, "%s: num_hidden_layers is %lld; with dense layers it can be at most %d", path,
                    (long long)reading->c.L, LAYER_SET_MOST);
    if (layer_set_count(&d->at, reading->c.L) == 0) d->F = 0;
    return OK;
}

enum error_code decoder_finish(struct config_reading *reading, const cJSON *root, const char *path, struct error *err)
{
    struct model_config *c = &reading->c;
    enum error_code e = find_experts(reading, root, path, err);
    if (!e && c->family->defaults->sparse_step) e = dense_layers_finish(reading, path, err);
    if (!e) e = mixture_finish(reading, path, err);
    if (e) return e;
    if (c->K == 0) c->K = c->H;
    if (reading->attention_bias) c->biases |= BIASES_ATTENTION;
    if (reading->qkv_bias) c->biases |= HAS_BIAS(ROLE_QKV);
    if (reading->mlp_bias) c->biases |= BIASES_FEED;
    if (STREAMS(c) == 1) model_set_streams(c, 1);
    if (reading->head_dim == 0 && c->D % c->H != 0)
        return fail(err, ERR_FORMAT, "%s: width D=%lld is not a multiple of H=%lld heads, and there is no head_dim",
                    path, (long long)c->D, (long long)c->H);
    c->A = reading->head_dim ? reading->head_dim : c->D / c->H;
    c->padding = padding_of(reading);
    if (!reading->output_router_logits) c->mixture.balance_coefficient = 0;
    e = windows_from_json(reading, path, err);
    return e ? e : rotary_from_json(reading, root, path, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Layernorms have an epsilon by another name, and some classes as many key/value heads as heads. */
static bool may_have(const struct model_config *config, const char *key)
{
    const bool differs = strcmp(key, "rms_norm_eps") == 0 || strcmp(key, "num_key_value_heads") == 0;
    return !differs || config_keys_have(config->family->keys, key);
}

bool decoder_sizes_to_json(const struct model_config *config, cJSON *root)
{
    const struct { const char *key; double value; } number[] = {
        { "max_position_embeddings", (double)config->S }, { "hidden_size", (double)config->D },
        { "num_attention_heads", (double)config->H },
        { "num_key_value_heads", (double)config->K }, { "num_hidden_layers", (double)config->L },
            { "vocab_size", (double)config->V },
        { "intermediate_size", (double)(config->dense.F ? config->dense.F : config->F) },
        { "rms_norm_eps", config->eps }, { "initializer_range", config->init_std },
        { "attention_dropout", config->dropout_attention },
    };
    const struct config_key *keys = config->family->keys;
    const char *act = config->mlp == MLP_GEGLU ? "gelu_pytorch_tanh" : "silu";
    bool ok = config->mlp == MLP_GELU || cJSON_AddStringToObject(root, "hidden_act", act);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (may_have(config, number[i].key))
            ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    if (config->biases & HAS_BIAS(ROLE_ATTENTION_OUT) && config_keys_have(keys, "attention_bias"))
        ok = cJSON_AddTrueToObject(root, "attention_bias") && ok;
    if (config->biases & HAS_BIAS(ROLE_UP) && config_keys_have(keys, "mlp_bias"))
        ok = cJSON_AddTrueToObject(root, "mlp_bias") && ok;
    const bool has_default = config->head_norms || config->mlp == MLP_GEGLU,  /* which is another width than D/H */
               needs_it = config->mlp == MLP_MIXTURE;    /* transformers 5 makes no dynamic scaling, YaRN or LongRoPE of
                                                          * a Mixtral without it */
    if (heads_width(config) != config->D || has_default || needs_it)
        ok = cJSON_AddNumberToObject(root, "head_dim", (double)config->A) && ok;
    if (STREAMS(config) > 1)
        ok = cJSON_AddNumberToObject(root, "parscale_n", (double)config->streams.P) &&
             cJSON_AddNumberToObject(root, "parscale_n_tokens", (double)config->streams.prefix) &&
             cJSON_AddNumberToObject(root, "parscale_attn_smooth", config->streams.smoothing) && ok;
    return windows_to_json(config, root) && rotary_to_json(config, root) && ok;
}

bool decoder_to_json(const struct model_config *config, cJSON *root)
{
    return decoder_sizes_to_json(config, root)
           && (config->mlp != MLP_MIXTURE || mixture_to_json(&config->mixture, root));
}
