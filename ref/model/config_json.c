/* config_json.c -- config.json as Hugging Face transformers writes it: which family, and what their readers share. */
#include "ref/model/config_json.h"
#include <stdio.h>
#include <string.h>

enum error_code json_only(const cJSON *root, const char *path, const char *key, const char *value, struct error *err)
{
    const char *found;
    if (!json_has(root, key)) return OK;
    enum error_code e = json_string(root, path, key, &found, err);
    if (e || strcmp(found, value) == 0) return e;
    return fail(err, ERR_FORMAT, "%s: %s is \"%.60s\"; Orrery has only \"%s\"", path, key, found, value);
}

enum error_code json_only_bool(const cJSON *root, const char *path, const char *key, bool value, struct error *err)
{
    bool found;
    if (!json_has(root, key)) return OK;
    enum error_code e = json_bool(root, path, key, &found, err);
    if (e || found == value) return e;
    return fail(err, ERR_FORMAT, "%s: %s is %s; Orrery has only %s", path, key, found ? "true" : "false", value ? "true" : "false");
}

enum error_code json_sizes(const cJSON *root, const char *path, const struct json_whole_key *list, int n, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < n && !e; i++) e = json_int(root, path, list[i].key, 1, INT32_MAX, list[i].to, err);
    return e;
}

enum error_code json_reals(const cJSON *root, const char *path, const struct json_real_key *list, int n, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < n && !e; i++)
        if (json_has(root, list[i].key)) e = json_double(root, path, list[i].key, list[i].to, err);
    return e;
}

/* ---- families ----------------------------------------------------------------------------------------------------------- */

/* The first is what a file without model_type is. */
static const struct family_format {
    enum model_family family;
    const char *model_type, *architecture;
    enum error_code (*from)(struct model_config *, const cJSON *root, const char *path, struct error *);
    bool (*to)(const struct model_config *, cJSON *root);
} formats[] = {
    { FAMILY_GPT2, "gpt2", "GPT2LMHeadModel", gpt2_from_json, gpt2_to_json },
    { FAMILY_LLAMA, "llama", "LlamaForCausalLM", llama_from_json, llama_to_json },
    { FAMILY_MIXTRAL, "mixtral", "MixtralForCausalLM", mixtral_from_json, llama_to_json },
};
enum { FORMATS = sizeof formats / sizeof *formats };

static enum error_code from_json(struct model_config *c, const cJSON *root, const char *path, struct error *err)
{
    const struct family_format *f = formats;
    const char *type = formats[0].model_type;
    enum error_code e = json_has(root, "model_type") ? json_string(root, path, "model_type", &type, err) : OK;
    if (e) return e;
    while (f < formats + FORMATS && strcmp(f->model_type, type) != 0) f++;
    if (f == formats + FORMATS)
        return fail(err, ERR_FORMAT, "%s: model_type is \"%.60s\"; Orrery has only \"gpt2\", \"llama\" and \"mixtral\"", path, type);
    e = f->from(c, root, path, err);
    if (e) return e;
    c->A = c->H > 0 ? c->D / c->H : 0;
    snprintf(c->name, sizeof c->name, "%s-L%lld-D%lld", f->model_type, (long long)c->L, (long long)c->D);
    return model_config_check(c, err);
}

enum error_code model_config_read(struct model_config *c, const char *path, struct error *err)
{
    cJSON *root;
    enum error_code e = json_read(path, &root, err);
    if (e) return e;
    e = from_json(c, root, path, err);
    cJSON_Delete(root);
    return e;
}

enum error_code model_config_parse(struct model_config *c, const char *text, const char *where, struct error *err)
{
    cJSON *root;
    enum error_code e = json_parse(text, strlen(text), where, &root, err);
    if (e) return e;
    e = from_json(c, root, where, err);
    cJSON_Delete(root);
    return e;
}

enum error_code model_config_write(const struct model_config *c, const char *path, struct error *err)
{
    const struct family_format *f = formats;
    enum error_code e = model_config_check(c, err);
    if (e) return e;
    while (f->family != model_family(c)) f++;
    cJSON *root = cJSON_CreateObject(), *architectures = cJSON_AddArrayToObject(root, "architectures");
    const bool ok = architectures && cJSON_AddItemToArray(architectures, cJSON_CreateString(f->architecture))
                    && cJSON_AddStringToObject(root, "model_type", f->model_type) && f->to(c, root);
    e = ok ? json_write(path, root, err) : fail(err, ERR_MEMORY, "%s: no memory to write it", path);
    cJSON_Delete(root);
    return e;
}
