/* config_released.c -- the config.json of a release whose code is its own, and whose models are those of a family.
 *
 * Such a file has another model_type than the family, and may call keys by other names.  Its document is rewritten with
 * the family's names, and read as any other; what is saved is a model of the family.  config_json.c calls these
 * functions.  ERR_FORMAT names the key.
 */
#include "ref/model/config_json/config_released.h"
#include <math.h>
#include <string.h>

/* ---- releases ---------------------------------------------------------------------------------------------------- */

static bool has_key(const cJSON *root, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(root, key) != NULL;
}

/* Give a key another name.  An absent key stays absent; both at once are refused. */
static enum error_code rename_key(cJSON *root, const char *from, const char *to, const char *path, struct error *err)
{
    if (!has_key(root, from)) return OK;
    if (has_key(root, to))
        return fail(err, ERR_FORMAT, "%s: %s and %s are there, which mean the same", path, from, to);
    cJSON *const value = cJSON_DetachItemFromObjectCaseSensitive(root, from);
    return cJSON_AddItemToObject(root, to, value) ? OK : fail(err, ERR_MEMORY, "%s: no memory to read it", path);
}

/* Give a flag that a file does not have the default of the release's class, which is not the family's. */
static enum error_code add_default(cJSON *root, const char *key, const char *path, struct error *err)
{
    return has_key(root, key) || cJSON_AddTrueToObject(root, key)
               ? OK : fail(err, ERR_MEMORY, "%s: no memory to read it", path);
}

/* InternLM (the first) calls the biases of attention `bias`. */
static enum error_code rewrite_internlm(cJSON *root, const char *path, struct error *err)
{
    const enum error_code e = rename_key(root, "bias", "attention_bias", path, err);
    return e ? e : add_default(root, "attention_bias", path, err);
}

/* MiMo's class is Qwen2's, whose queries, keys and values always have biases, and adds layers that predict further
 * tokens; their tensors are left aside. */
static enum error_code rewrite_mimo(cJSON *root, const char *path, struct error *err)
{
    const cJSON *const bias = cJSON_GetObjectItemCaseSensitive(root, "attention_bias");
    if (bias && !cJSON_IsTrue(bias))
        return fail(err, ERR_FORMAT, "%s: attention_bias is not true; a MiMo's attention has biases", path);
    cJSON_DeleteItemFromObjectCaseSensitive(root, "attention_bias");
    cJSON_DeleteItemFromObjectCaseSensitive(root, "num_nextn_predict_layers");
    return OK;
}

/* The number of a key, which must be there and above 0; its place in the document is given up. */
static enum error_code take_positive(double *x, cJSON *root, const char *key, const char *path, struct error *err)
{
    const enum error_code e = json_double(root, path, key, x, err);
    if (e) return e;
    if (!(*x > 0)) return fail(err, ERR_FORMAT, "%s: %s is %g; it must be above 0", path, key, *x);
    cJSON_DeleteItemFromObjectCaseSensitive(root, key);
    return OK;
}

/* MiniCPM multiplies embeddings by scale_emb and branches by scale_depth / sqrt(layers), divides logits by the width
 * over dim_model_base, and scores by the root of a head's width: a Granite's four numbers. */
static enum error_code rewrite_minicpm(cJSON *root, const char *path, struct error *err)
{
    double embedding, depth, base, D, H, L;
    enum error_code e = json_double(root, path, "hidden_size", &D, err);
    if (!e) e = json_double(root, path, "num_attention_heads", &H, err);
    if (!e) e = json_double(root, path, "num_hidden_layers", &L, err);
    if (!e) e = take_positive(&embedding, root, "scale_emb", path, err);
    if (!e) e = take_positive(&depth, root, "scale_depth", path, err);
    if (!e) e = take_positive(&base, root, "dim_model_base", path, err);
    if (!e) e = add_default(root, "tie_word_embeddings", path, err);
    if (e) return e;
    if (!(D >= 1 && H >= 1 && L >= 1))
        return fail(err, ERR_FORMAT, "%s: hidden_size, num_attention_heads and num_hidden_layers must be at least 1",
                    path);
    return cJSON_AddNumberToObject(root, "embedding_multiplier", embedding) &&
           cJSON_AddNumberToObject(root, "residual_multiplier", depth / sqrt(L)) &&
           cJSON_AddNumberToObject(root, "logits_scaling", D / base) &&
           cJSON_AddNumberToObject(root, "attention_multiplier", 1 / sqrt(D / H))
               ? OK : fail(err, ERR_MEMORY, "%s: no memory to read it", path);
}

static const struct release releases[] = {
    { "kimi_k2", "DeepseekV3ForCausalLM", "DeepseekV3Model", "deepseek_v3", NULL },
    { "internlm", "InternLMForCausalLM", "InternLMModel", "llama", rewrite_internlm },
    { "mimo", "MiMoForCausalLM", "MiMoModel", "qwen2", rewrite_mimo },
    { "minicpm", "MiniCPMForCausalLM", "MiniCPMModel", "granite", rewrite_minicpm },
    { .type = NULL },
};

const struct release *release_find(const char *type)
{
    for (const struct release *r = releases; r->type; r++)
        if (strcmp(r->type, type) == 0) return r;
    return NULL;
}

/* ---- what is not read -------------------------------------------------------------------------------------------- */

static const struct { const char *type, *why; } unread[] = {
#define UNREAD(type, why) { type, why },
#include "ref/model/config_json/unread.def"
#undef UNREAD
};

const char *release_unread(const char *type)
{
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (strcmp(unread[i].type, type) == 0) return unread[i].why;
    return NULL;
}
