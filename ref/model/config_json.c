/* config_json.c -- the config.json of a GPT-2 as Hugging Face transformers writes it. */
#include "ref/io/json.h"
#include "ref/model/config.h"
#include <stdio.h>
#include <string.h>

/* What we do in one way only: a file that asks for another way is refused, not misread. */
static enum error_code only(const cJSON *root, const char *path, const char *key, const char *value, struct error *err)
{
    const char *found;
    if (!json_has(root, key)) return OK;
    enum error_code e = json_string(root, path, key, &found, err);
    if (e || strcmp(found, value) == 0) return e;
    return fail(err, ERR_FORMAT, "%s: %s is \"%.60s\"; Orrery has only \"%s\"", path, key, found, value);
}

static enum error_code only_bool(const cJSON *root, const char *path, const char *key, bool value, struct error *err)
{
    bool found;
    if (!json_has(root, key)) return OK;
    enum error_code e = json_bool(root, path, key, &found, err);
    if (e || found == value) return e;
    return fail(err, ERR_FORMAT, "%s: %s is %s; Orrery has only %s", path, key, found ? "true" : "false", value ? "true" : "false");
}

static enum error_code optional_double(const cJSON *root, const char *path, const char *key, double *out, struct error *err)
{
    return json_has(root, key) ? json_double(root, path, key, out, err) : OK;
}

static enum error_code read_fields(struct model_config *c, const cJSON *root, const char *path, struct error *err)
{
    const struct { const char *key; int64_t *to; } whole[] = {
        { "n_positions", &c->S }, { "n_embd", &c->D }, { "n_head", &c->H }, { "n_layer", &c->L }, { "vocab_size", &c->V },
    };
    const struct { const char *key; double *to; } real[] = {
        { "layer_norm_epsilon", &c->eps }, { "initializer_range", &c->init_std }, { "embd_pdrop", &c->dropout_embedding },
        { "resid_pdrop", &c->dropout_residual }, { "attn_pdrop", &c->dropout_attention },
    };
    enum error_code e = only(root, path, "model_type", "gpt2", err);
    if (!e) e = only(root, path, "activation_function", "gelu_new", err);
    if (!e) e = only_bool(root, path, "scale_attn_weights", true, err);
    if (!e) e = only_bool(root, path, "scale_attn_by_inverse_layer_idx", false, err);
    if (!e) e = only_bool(root, path, "reorder_and_upcast_attn", false, err);
    if (!e) e = only_bool(root, path, "add_cross_attention", false, err);
    for (size_t i = 0; !e && i < sizeof whole / sizeof *whole; i++)
        e = json_int(root, path, whole[i].key, 1, INT32_MAX, whole[i].to, err);
    for (size_t i = 0; !e && i < sizeof real / sizeof *real; i++) e = optional_double(root, path, real[i].key, real[i].to, err);
    c->F = 4 * c->D;
    if (!e && json_has(root, "n_inner")) e = json_int(root, path, "n_inner", 1, INT32_MAX, &c->F, err);
    if (!e && json_has(root, "tie_word_embeddings")) e = json_bool(root, path, "tie_word_embeddings", &c->tied, err);
    return e;
}

enum error_code model_config_read(struct model_config *c, const char *path, struct error *err)
{
    cJSON *root;
    enum error_code e = json_read(path, &root, err);
    if (e) return e;
    *c = (struct model_config){ .tied = true, .eps = 1e-5, .init_std = 0.02,            /* GPT2Config's own defaults */
                                .dropout_embedding = 0.1, .dropout_residual = 0.1, .dropout_attention = 0.1 };
    e = read_fields(c, root, path, err);
    cJSON_Delete(root);
    if (e) return e;
    c->A = c->H > 0 ? c->D / c->H : 0;
    snprintf(c->name, sizeof c->name, "gpt2-L%lld-D%lld", (long long)c->L, (long long)c->D);
    return model_config_check(c, err);
}

enum error_code model_config_write(const struct model_config *c, const char *path, struct error *err)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *architectures = cJSON_AddArrayToObject(root, "architectures");
    cJSON_AddItemToArray(architectures, cJSON_CreateString("GPT2LMHeadModel"));
    cJSON_AddStringToObject(root, "model_type", "gpt2");
    cJSON_AddStringToObject(root, "activation_function", "gelu_new");
    const struct { const char *key; double value; } number[] = {
        { "n_positions", (double)c->S }, { "n_ctx", (double)c->S }, { "n_embd", (double)c->D }, { "n_head", (double)c->H },
        { "n_layer", (double)c->L }, { "n_inner", (double)c->F }, { "vocab_size", (double)c->V },
        { "layer_norm_epsilon", c->eps }, { "initializer_range", c->init_std }, { "embd_pdrop", c->dropout_embedding },
        { "resid_pdrop", c->dropout_residual }, { "attn_pdrop", c->dropout_attention },
    };
    bool ok = root && architectures;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        ok = cJSON_AddNumberToObject(root, number[i].key, number[i].value) && ok;
    ok = cJSON_AddBoolToObject(root, "tie_word_embeddings", c->tied) && ok;
    enum error_code e = ok ? json_write(path, root, err) : fail(err, ERR_MEMORY, "%s: no memory to write it", path);
    cJSON_Delete(root);
    return e;
}
