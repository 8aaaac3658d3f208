/* config_gpt2.c -- the config.json of a GPT-2. */
#include "ref/model/config_json.h"

enum error_code gpt2_from_json(struct model_config *c, const cJSON *root, const char *path, struct error *err)
{
    *c = (struct model_config){ .biases = true, .tied = true, .eps = 1e-5, .init_std = 0.02,            /* GPT2Config's own defaults */
                                .dropout_embedding = 0.1, .dropout_residual = 0.1, .dropout_attention = 0.1 };
    const struct json_whole_key sizes[] = {
        { "n_positions", &c->S }, { "n_embd", &c->D }, { "n_head", &c->H }, { "n_layer", &c->L }, { "vocab_size", &c->V },
    };
    const struct json_real_key reals[] = {
        { "layer_norm_epsilon", &c->eps }, { "initializer_range", &c->init_std }, { "embd_pdrop", &c->dropout_embedding },
        { "resid_pdrop", &c->dropout_residual }, { "attn_pdrop", &c->dropout_attention },
    };
    enum error_code e = json_only(root, path, "activation_function", "gelu_new", err);
    if (!e) e = json_only_bool(root, path, "scale_attn_weights", true, err);
    if (!e) e = json_only_bool(root, path, "scale_attn_by_inverse_layer_idx", false, err);
    if (!e) e = json_only_bool(root, path, "reorder_and_upcast_attn", false, err);
    if (!e) e = json_only_bool(root, path, "add_cross_attention", false, err);
    if (!e) e = json_sizes(root, path, sizes, (int)(sizeof sizes / sizeof *sizes), err);
    if (!e) e = json_reals(root, path, reals, (int)(sizeof reals / sizeof *reals), err);
    if (e) return e;
    c->K = c->H;
    c->F = 4 * c->D;
    if (json_has(root, "n_inner")) e = json_int(root, path, "n_inner", 1, INT32_MAX, &c->F, err);
    if (!e && json_has(root, "tie_word_embeddings")) e = json_bool(root, path, "tie_word_embeddings", &c->tied, err);
    return e;
}

bool gpt2_to_json(const struct model_config *c, cJSON *root)
{
    const struct { const char *key; double value; } number[] = {
        { "n_positions", (double)c->S }, { "n_ctx", (double)c->S }, { "n_embd", (double)c->D }, { "n_head", (double)c->H },
        { "n_layer", (double)c->L }, { "n_inner", (double)c->F }, { "vocab_size", (double)c->V },
        { "layer_norm_epsilon", c->eps }, { "initializer_range", c->init_std }, { "embd_pdrop", c->dropout_embedding },
        { "resid_pdrop", c->dropout_residual }, { "attn_pdrop", c->dropout_attention },
    };
    bool ok = cJSON_AddStringToObject(root, "activation_function", "gelu_new") != NULL;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    return cJSON_AddBoolToObject(root, "tie_word_embeddings", c->tied) && ok;
}
