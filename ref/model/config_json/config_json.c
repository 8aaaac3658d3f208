/* config_json.c -- the config.json of Hugging Face transformers: finds the family; the keys of all families.
 *
 * Every key is in a list (config_keys.h): those of a family in its file of families/, those of all families here.
 * Files of model/checkpoint/, ref/golden/, cli/ and ref/model/ call these functions.  ERR_FORMAT names a model_type,
 * architecture or quantisation that is not read; ERR_MEMORY; ERR_FILE.
 */
#include "ref/io/file_kind.h"
#include "ref/model/config_json/config_json.h"
#include "ref/model/kinds.h"
#include "ref/model/weights_codes.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>

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
    KEY_ONLY_AS("auto_map", "{}", "null"),         /* a model of its own code */
    KEY_ONLY_AS("per_layer_config", "{}", "null"), /* layers that differ */
    KEY_ONLY_AS("rope_interleaved", "false"),

    /* Origin; model_type and architectures are read before the rest. */
    KEY_LEFT("quantization_config"),               /* check_codes */
    KEY_LEFT("model_type"), KEY_LEFT("architectures"), KEY_LEFT("_name_or_path"), KEY_LEFT("name_or_path"),
    KEY_LEFT("_commit_hash"), KEY_LEFT("transformers_version"), KEY_LEFT("unsloth_version"),
    KEY_LEFT("unsloth_fixed"),

    /* Other ways to compute the same; the number format is ours (--dtype). */
    KEY_LEFT("torch_dtype"), KEY_LEFT("dtype"), KEY_LEFT("use_cache"), KEY_LEFT("cache_implementation"),
    KEY_LEFT("gradient_checkpointing"), KEY_LEFT("attn_implementation"), KEY_LEFT("_attn_implementation"),
    KEY_LEFT("_attn_implementation_autoset"), KEY_LEFT("experts_implementation"), KEY_LEFT("_experts_implementation"),
    KEY_LEFT("_flash_attn_2_enabled"), KEY_LEFT("is_decoder"),

    /* Special tokens, used only for text generation; pad_token_id is in the lists of the families. */
    KEY_LEFT("bos_token_id"), KEY_LEFT("eos_token_id"), KEY_LEFT("sep_token_id"),
    KEY_LEFT("unk_token_id"), KEY_LEFT("decoder_start_token_id"), KEY_LEFT("tokenizer_class"), KEY_LEFT("prefix"),

    /* Additional outputs of the model. */
    KEY_LEFT("output_attentions"), KEY_LEFT("output_hidden_states"), KEY_LEFT("output_scores"),
    KEY_LEFT("return_dict"), KEY_LEFT("return_dict_in_generate"), KEY_LEFT("use_return_dict"),

    /* Other heads: classification, summaries. */
    KEY_LEFT("id2label"), KEY_LEFT("label2id"), KEY_LEFT("num_labels"), KEY_LEFT("problem_type"),
    KEY_LEFT("finetuning_task"), KEY_LEFT("task_specific_params"), KEY_LEFT("classifier_dropout"),
    KEY_LEFT("summary_type"), KEY_LEFT("summary_use_proj"), KEY_LEFT("summary_activation"),
    KEY_LEFT("summary_proj_to_labels"), KEY_LEFT("summary_first_dropout"),

    /* Text generation by generate(). */
    KEY_LEFT("max_length"), KEY_LEFT("min_length"), KEY_LEFT("max_new_tokens"), KEY_LEFT("do_sample"),
    KEY_LEFT("early_stopping"), KEY_LEFT("num_beams"), KEY_LEFT("num_beam_groups"), KEY_LEFT("diversity_penalty"),
    KEY_LEFT("temperature"), KEY_LEFT("top_k"), KEY_LEFT("top_p"), KEY_LEFT("min_p"), KEY_LEFT("typical_p"),
    KEY_LEFT("repetition_penalty"), KEY_LEFT("length_penalty"), KEY_LEFT("no_repeat_ngram_size"),
    KEY_LEFT("encoder_no_repeat_ngram_size"), KEY_LEFT("bad_words_ids"), KEY_LEFT("num_return_sequences"),
    KEY_LEFT("forced_bos_token_id"), KEY_LEFT("forced_eos_token_id"), KEY_LEFT("remove_invalid_values"),
    KEY_LEFT("exponential_decay_length_penalty"), KEY_LEFT("suppress_tokens"), KEY_LEFT("begin_suppress_tokens"),
    { .name = NULL },
};

/* ---- families ---------------------------------------------------------------------------------------------------- */

static enum error_code find_family(const struct family **family, const cJSON *root, const char *path,
                                   struct error *err)
{
    const char *type;
    const enum error_code e = json_string(root, path, "model_type", &type, err);
    if (e) return e;
    for (int f = 0; families[f]; f++)
        if (strcmp(families[f]->name, type) == 0) return *family = families[f], OK;
    return fail(err, ERR_FORMAT, "%s: model_type is \"%.60s\"; Orrery has only %s", path, printable(type).text,
                families_text().text);
}

/* Check the class that wrote the file: another class with the same model_type differs after the last layer. */
static enum error_code check_architecture(const struct family *family, const cJSON *root, const char *path,
                                          struct error *err)
{
    const cJSON *list, *class;
    if (!json_has(root, "architectures")) return OK;
    const enum error_code e = json_array(root, path, "architectures", &list, err);
    if (e) return e;
    cJSON_ArrayForEach(class, list) {
        const char *name = cJSON_IsString(class) ? class->valuestring : "";
        if (strcmp(name, family->architecture) != 0 && strcmp(name, family->without_head) != 0)
            return fail(err, ERR_FORMAT,
                        "%s: architectures has \"%.60s\"; of model_type \"%s\" Orrery has only \"%s\" and \"%s\"", path,
                        printable(name).text, family->name, family->architecture, family->without_head);
    }
    return OK;
}

static bool is_text(const cJSON *object, const char *key, const char *text)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(v) && strcmp(v->valuestring, text) == 0;
}

/* e4m3 with a factor for each block of 128 x 128, as DeepSeek releases weights; activations are not rounded here. */
static bool are_blocks(const cJSON *codes)
{
    const cJSON *block = cJSON_GetObjectItemCaseSensitive(codes, "weight_block_size"), *one;
    bool fits = cJSON_GetArraySize(block) == 2;
    cJSON_ArrayForEach(one, block) fits = fits && cJSON_IsNumber(one) && one->valuedouble == CODES_BLOCK;
    return fits && is_text(codes, "quant_method", "fp8") &&
           (!json_has(codes, "fmt") || is_text(codes, "fmt", "e4m3"));
}

/* Weights that are codes, such as the released ones of a GPT-OSS. */
static enum error_code check_codes(const cJSON *root, const char *path, struct error *err)
{
    const cJSON *codes = cJSON_GetObjectItemCaseSensitive(root, "quantization_config"),
                *method = cJSON_GetObjectItemCaseSensitive(codes, "quant_method");
    if (!json_has(root, "quantization_config") || are_blocks(codes)) return OK;
    return fail(err, ERR_FORMAT, "%s: quantization_config says that the weights are codes, of \"%.40s\"; Orrery reads "
                "numbers, and fp8, e4m3 in blocks of %d x %d: load the model dequantised with transformers, and save "
                "it", path, cJSON_IsString(method) ? printable(method->valuestring).text : "?", CODES_BLOCK,
                CODES_BLOCK);
}

static enum error_code from_json(struct model_config *config, const cJSON *root, const char *path, struct error *err)
{
    const struct family *f = NULL;
    enum error_code e = find_family(&f, root, path, err);
    if (!e) e = check_architecture(f, root, path, err);
    if (!e) e = check_codes(root, path, err);
    if (e) return e;
    struct config_reading reading = *f->defaults;
    reading.c.family = f;
    const struct config_key *const lists[] = { f->keys, common_keys };
    e = config_keys_read(lists, 2, root, path, &reading, err);
    if (!e) e = f->finish(&reading, root, path, err);
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
