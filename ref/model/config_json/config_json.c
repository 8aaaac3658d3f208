/* config_json.c -- the config.json of Hugging Face transformers: finds the family; the keys of all families.
 *
 * Every key is in a list (config_keys.h): those of a family in its file of families/, those of all families here.
 * Files of model/checkpoint/, ref/golden/, cli/ and ref/model/ call these functions.  ERR_FORMAT names a model_type,
 * architecture or quantisation that is not read; ERR_MEMORY; ERR_FILE.
 */
#include "ref/io/file_kind.h"
#include "ref/model/config_json/config_json.h"
#include "ref/model/config_json/config_released.h"
#include "ref/model/kinds.h"
#include "ref/model/weights_others.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { WHERE_ROOM = 1024, PATH_ROOM = 4096 };

/* ---- keys of any model ------------------------------------------------------------------------------------------- */

static const struct config_key common_keys[] = {
    CONFIG_BOTH("tie_word_embeddings", KEY_FLAG, c.tied),
    CONFIG_TO("initializer_range", KEY_REAL, c.init_std),
    CONFIG_TO("vocab_size", KEY_SIZE, c.V),

    /* Only one value is supported. */
    KEY_ONLY_AS("is_encoder_decoder", "false"), KEY_ONLY_AS("add_cross_attention", "false"),
    KEY_ONLY_AS("cross_attention_hidden_size", "null"), KEY_ONLY_AS("tie_encoder_decoder", "false"),
    KEY_ONLY_AS("chunk_size_feed_forward", "0"), KEY_ONLY_AS("pruned_heads", "{}", "null"),
    KEY_ONLY_AS("torchscript", "false"), /* tied matrices would be copies */
    KEY_ONLY_AS("use_bfloat16", "false"), KEY_ONLY_AS("tf_legacy_loss", "false"),
    KEY_ONLY_AS("per_layer_config", "{}", "null"), /* layers that differ */
    KEY_ONLY_AS("rope_interleaved", "false"),

#define REASON(name, text)
#define IGNORED(key, reason) KEY_LEFT(key),
#include "ref/model/config_json/ignored.def"
#undef IGNORED
#undef REASON
    { .name = NULL },
};

/* ---- families ---------------------------------------------------------------------------------------------------- */

/* A file: its family, and the classes that may have written it. */
struct origin {
    const char *type, *architecture, *without_head;
    const struct family *family;
    const struct release *release;      /* NULL: the file is the family's own */
};

static const struct family *family_find(const char *type)
{
    int f = 0;
    while (families[f] && strcmp(families[f]->name, type) != 0) f++;
    return families[f];
}

static enum error_code find_origin(struct origin *origin, const cJSON *root, const char *path, struct error *err)
{
    const char *type;
    const enum error_code e = json_string(root, path, "model_type", &type, err);
    if (e) return e;
    const struct release *const r = release_find(type);
    const struct family *const f = family_find(r ? r->family : type);
    if (f == NULL && release_unread(type))
        return fail(err, ERR_FORMAT, "%s: model_type is \"%s\", which is not read: %s", path, type,
                    release_unread(type));
    if (f == NULL)
        return fail(err, ERR_FORMAT, "%s: model_type is \"%.60s\"; Orrery has only %s", path, printable(type).text,
                    families_text().text);
    *origin = r ? (struct origin){ r->type, r->architecture, r->without_head, f, r }
                : (struct origin){ f->name, f->architecture, f->without_head, f, NULL };
    return OK;
}

/* Check the class that wrote the file: another class with the same model_type differs after the last layer.  The first
 * files of Llamas have LLaMAForCausalLM. */
static enum error_code check_architecture(const struct origin *origin, const cJSON *root, const char *path,
                                          struct error *err)
{
    const cJSON *list, *class;
    if (!json_has(root, "architectures")) return OK;
    const enum error_code e = json_array(root, path, "architectures", &list, err);
    if (e) return e;
    cJSON_ArrayForEach(class, list) {
        const char *name = cJSON_IsString(class) ? class->valuestring : "";
        if (strcasecmp(name, origin->architecture) != 0 && strcasecmp(name, origin->without_head) != 0)
            return fail(err, ERR_FORMAT,
                        "%s: architectures has \"%.60s\"; of model_type \"%s\" Orrery has only \"%s\" and \"%s\"", path,
                        printable(name).text, origin->type, origin->architecture, origin->without_head);
    }
    return OK;
}

/* The keys of a release get the family's names in the document, and messages say what it is read as. */
static enum error_code rewrite(const struct release *release, cJSON *root, const char *path, char *where, size_t size,
                               struct error *err)
{
    snprintf(where, size, "%s%s%s", path, release ? ", read as a " : "", release ? release->family : "");
    return release && release->rewrite ? release->rewrite(root, path, err) : OK;
}

static enum error_code from_json(struct model_config *config, cJSON *root, const char *path, struct error *err)
{
    struct origin origin = { NULL };
    char where[WHERE_ROOM];
    enum error_code e = find_origin(&origin, root, path, err);
    if (!e) e = check_architecture(&origin, root, path, err);
    if (!e) e = rewrite(origin.release, root, path, where, sizeof where, err);
    if (e) return e;
    const struct family *const f = origin.family;
    struct config_reading reading = *f->defaults;
    reading.c.family = f;
    const struct config_key *const lists[] = { f->keys, common_keys };
    e = config_keys_read(lists, 2, root, where, &reading, err);
    if (!e) e = f->finish(&reading, root, where, err);
    if (e) return e;
    *config = reading.c;
    snprintf(config->name, sizeof config->name, "%s-L%lld-D%lld", f->name, (long long)config->L, (long long)config->D);
    return model_config_check(config, err);
}

/* A folder without a config.json may be something else.  @return the same code. */
static enum error_code config_refuse(enum error_code failed, const char *path, struct error *err)
{
    char folder[4096];
    const char *const slash = strrchr(path, '/');
    if (slash == NULL || (size_t)(slash - path) >= sizeof folder) return failed;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return file_kind_refuse(failed, folder, "the folder of a model", FILE_MODEL, err);
}

enum error_code model_config_read(struct model_config *config, const char *path, struct error *err)
{
    cJSON *root;
    enum error_code e = json_read(path, &root, err);
    if (e) return config_refuse(e, path, err);
    e = from_json(config, root, path, err);
    cJSON_Delete(root);
    return e;
}

enum error_code model_config_read_folder(struct model_config *config, const char *dir, struct error *err)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/config.json", dir);
    const enum error_code e = access(path, F_OK) == 0 ? OK : others_refuse(dir, "config.json", err);
    return e ? e : model_config_read(config, path, err);
}

enum error_code model_config_parse(struct model_config *config, const char *text, const char *where, struct error *err)
{
    cJSON *root;
    enum error_code e = json_parse(text, strlen(text), where, &root, err);
    if (e) return e;
    e = from_json(config, root, where, err);
    cJSON_Delete(root);
    return e;
}

/* The values of the keys that a file of this model has. */
static struct config_reading values_of(const struct model_config *config, const cJSON *dense)
{
    struct config_reading f = *config->family->defaults;
    f.c = *config;
    f.n_ctx = config->S, f.head_dim = config->A, f.experts = config->mixture.E, f.sparse_step = 1,
        f.dense_layers = dense;
    f.shared_experts = config->mixture.shared / config->F,
        f.first_dense = layer_set_count(&config->dense.at, config->L);
    f.pad_token = config->padding ? config->padding - 1 : NO_TOKEN;
    f.attention_bias = f.qkv_bias = config->biases & HAS_BIAS(ROLE_QKV);
    if (config->score_width == 0) f.c.score_width = (double)config->A;
    return f;
}

static bool add_dense_layers(const struct model_config *config, cJSON *list)
{
    bool ok = list != NULL;
    for (int64_t l = 0; l < config->L && ok; l++)
        if (layer_set_has(&config->dense.at, l)) ok = cJSON_AddItemToArray(list, cJSON_CreateNumber((double)l));
    return ok;
}

/* The document of a checked config; NULL without memory. */
static cJSON *to_json(const struct model_config *config)
{
    const struct family *f = config->family;
    cJSON *root = cJSON_CreateObject(), *architectures = cJSON_AddArrayToObject(root, "architectures"),
          *dense = cJSON_CreateArray();
    const struct config_reading values = values_of(config, dense);
    const bool ok = architectures && cJSON_AddItemToArray(architectures, cJSON_CreateString(f->architecture))
                    && cJSON_AddStringToObject(root, "model_type", f->name) && add_dense_layers(config, dense)
                    && (f->write == NULL || f->write(config, root)) && config_keys_write(f->keys, &values, root)
                    && config_keys_write(common_keys, &values, root);
    cJSON_Delete(dense);
    if (ok) return root;
    cJSON_Delete(root);
    return NULL;
}

enum error_code model_config_write(const struct model_config *config, const char *path, struct error *err)
{
    enum error_code e = model_config_check(config, err);
    if (e) return e;
    cJSON *root = to_json(config);
    e = root ? json_write(path, root, err) : fail(err, ERR_MEMORY, "%s: no memory to write it", path);
    cJSON_Delete(root);
    return e;
}

enum error_code model_config_text(const struct model_config *config, char **text, struct error *err)
{
    *text = NULL;
    enum error_code e = model_config_check(config, err);
    if (e) return e;
    cJSON *root = to_json(config);
    *text = root ? json_text(root, false) : NULL;
    cJSON_Delete(root);
    return *text ? OK : fail(err, ERR_MEMORY, "no memory for the config of %s", config->name);
}
