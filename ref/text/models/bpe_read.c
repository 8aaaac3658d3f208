/* bpe_read.c -- the model BPE of a tokenizer.json.
 *
 * kinds.def lists it; bpe.c has the merging.  Errors: ERR_FORMAT of a wrong file, and of a word that needs an unknown
 * token where there is none; ERR_MEMORY.
 */
#include "ref/text/models/bpe.h"
#include "ref/text/models/model.h"
#include <stdlib.h>
#include <string.h>

struct bpe_model {
    struct bpe *bpe;                    /* vocabulary and merges */
    char *prefix, *suffix, *unknown;    /* texts of its rule */
};

/* A merge is one text with a blank between its two tokens, or a list of both. */
static enum error_code bpe_read_merge(struct bpe *bpe, const struct step_reading *reading, const cJSON *merge)
{
    const char *both = cJSON_GetStringValue(merge), *blank = both ? strchr(both, ' ') : NULL;
    const bool pair = cJSON_IsArray(merge) && cJSON_GetArraySize(merge) == 2;
    const char *left = both ? both : cJSON_GetStringValue(pair ? merge->child : NULL);
    const char *right = both ? blank ? blank + 1 : NULL : cJSON_GetStringValue(pair ? merge->child->next : NULL);
    if (left == NULL || right == NULL || (both && strchr(right, ' ')))
        return fail(reading->err, ERR_FORMAT, "%s: model: merges: each must be two tokens", reading->path);
    const enum error_code e = bpe_merge(bpe, left, both ? (size_t)(blank - both) : strlen(left), right, strlen(right),
                                        reading->err);
    return fail_about(reading->err, e, reading->path);
}

/* Merges stand in the file in the order of their ranks.  A line of an old merges.txt may say its version. */
static enum error_code bpe_read_merges(struct bpe *bpe, const struct step_reading *reading, const cJSON *object)
{
    static const char version[] = "#version";
    const cJSON *one, *merges = cJSON_GetObjectItemCaseSensitive(object, "merges");
    if (!cJSON_IsArray(merges)) return step_wrong(reading, "merges: must be a list");
    cJSON_ArrayForEach(one, merges) {
        const char *text = cJSON_GetStringValue(one);
        if (text && strncmp(text, version, sizeof version - 1) == 0) continue;
        const enum error_code e = bpe_read_merge(bpe, reading, one);
        if (e) return e;
    }
    return OK;
}

/* Dropout leaves merges out by chance, so the tokens of a text would not be a function of the text. */
static enum error_code bpe_read_dropout(const struct step_reading *reading, const cJSON *object)
{
    const cJSON *dropout = cJSON_GetObjectItemCaseSensitive(object, "dropout");
    if (dropout == NULL || cJSON_IsNull(dropout)) return OK;
    if (!cJSON_IsNumber(dropout)) return step_wrong(reading, "dropout: must be a number or null");
    return dropout->valuedouble == 0 ? OK : step_refuse(reading, "dropout");
}

static enum error_code bpe_read_rule(struct bpe_model *model, struct bpe_rule *rule,
                                     const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_text_copy(reading, object, "continuing_subword_prefix", "", &model->prefix);
    if (!e) e = step_text_copy(reading, object, "end_of_word_suffix", "", &model->suffix);
    if (!e) e = step_flag(reading, object, "byte_fallback", false, &rule->byte_fallback);
    if (!e) e = step_flag(reading, object, "ignore_merges", false, &rule->whole_first);
    if (!e) e = step_flag(reading, object, "fuse_unk", false, &rule->fuse_unknown);
    if (!e && json_has(object, "unk_token")) e = step_text_copy(reading, object, "unk_token", NULL, &model->unknown);
    rule->prefix = model->prefix, rule->suffix = model->suffix, rule->unknown = model->unknown;
    return e;
}

static enum error_code bpe_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    struct vocabulary *vocabulary;
    struct bpe_rule rule = { 0 };
    enum error_code e = step_state(state, sizeof(struct bpe_model), reading);
    struct bpe_model *model = *state;
    if (!e) e = step_keys(reading, object, "dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
                                           "byte_fallback ignore_merges vocab merges");
    if (!e) e = bpe_read_dropout(reading, object);
    if (!e) e = bpe_read_rule(model, &rule, reading, object);
    if (!e) e = vocabulary_read(&vocabulary, reading, object);
    if (e) return e;
    model->bpe = bpe_open(vocabulary, rule);
    return model->bpe ? bpe_read_merges(model->bpe, reading, object) : step_no_memory(reading);
}

static enum error_code bpe_apply(void *state, const char *word, size_t bytes, struct token_ids *to, struct error *err)
{
    return bpe_word(((struct bpe_model *)state)->bpe, word, bytes, to, err);
}

static const struct vocabulary *bpe_names(const void *state)
{
    return bpe_vocabulary(((const struct bpe_model *)state)->bpe);
}

static void bpe_read_close(void *state)
{
    struct bpe_model *model = state;
    bpe_close(model->bpe);
    free(model->prefix), free(model->suffix), free(model->unknown);
    free(model);
}

const struct model_kind model_bpe = { { "BPE", bpe_read, bpe_read_close }, bpe_apply, bpe_names };
