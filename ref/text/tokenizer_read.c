/* tokenizer_read.c -- reads a tokenizer.json into the parts of a tokenizer.
 *
 * tokenizer_open calls tokenizer_read.  Errors are ERR_FORMAT, which names the part that is wrong or not supported,
 * and ERR_MEMORY.  What was read before an error belongs to the tokenizer, which tokenizer_close frees.
 */
#include "ref/text/tokenizer_parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GPT-2's own expression, which ByteLevel has in it. */
#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

struct reading { struct tokenizer *t; const char *path; struct error *err; };

char *text_copy(const char *text)
{
    char *copy = malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

static enum error_code tokenizer_read_no_memory(const struct reading *reading)
{
    return fail(reading->err, ERR_MEMORY, "%s: no memory", reading->path);
}

static enum error_code not_supported(const struct reading *reading, const char *part, const char *what)
{
    return fail(reading->err, ERR_FORMAT, "%s: %s: %s is not supported", reading->path, part, what);
}

/* A flag that is missing, or null, has its usual value. */
static bool flag(const cJSON *o, const char *key, bool usual)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsBool(x) ? cJSON_IsTrue(x) : usual;
}

/* A key that is missing reads as an empty text. */
static const char *word(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
    return s ? s : "";
}

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

/* ---- a part that is one of several kinds, or a sequence of them -------------------------------------------------- */

typedef enum error_code read_fn(const struct reading *, const char *type, const cJSON *o);

/* A part may be missing, null, of one kind, or a sequence of kinds. */
static enum error_code read_each(const struct reading *reading, const cJSON *root, const char *part, const char *list,
                                 read_fn *read)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(root, part), *all, *one;
    if (o == NULL || cJSON_IsNull(o)) return OK;
    if (!cJSON_IsObject(o)) return fail(reading->err, ERR_FORMAT, "%s: %s: must be an object", reading->path, part);
    if (!is(word(o, "type"), "Sequence")) return read(reading, word(o, "type"), o);
    enum error_code e = json_array(o, reading->path, list, &all, reading->err);
    if (e) return e;
    cJSON_ArrayForEach(one, all)
        if ((e = read(reading, word(one, "type"), one))) return e;
    return OK;
}

/* ---- normalizers ------------------------------------------------------------------------------------------------- */

/* A normalizer: a text before all others, a replacement, or NFC. */
static enum error_code read_normal(const struct reading *reading, const char *type, const cJSON *o)
{
    struct normal *n = &reading->t->normal[reading->t->normals];
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(o, "pattern");
    if (reading->t->normals == STEPS_MOST) return not_supported(reading, "normalizer", "so long a sequence");
    if (is(type, "Prepend")) *n = (struct normal){ NORMAL_PREPEND, NULL, text_copy(word(o, "prepend")) };
    else if (is(type, "Replace") && *word(pattern, "String"))
        *n = (struct normal){ NORMAL_REPLACE, text_copy(word(pattern, "String")), text_copy(word(o, "content")) };
    else if (is(type, "NFC")) *n = (struct normal){ NORMAL_NFC, NULL, text_copy("") };
    else return not_supported(reading, "normalizer", type);
    reading->t->normals++;
    return n->to && (n->from || n->kind != NORMAL_REPLACE) ? OK : tokenizer_read_no_memory(reading);
}

/* ---- splitters --------------------------------------------------------------------------------------------------- */

/* The splitter is added also after an error, so that its pattern is freed with the tokenizer. */
static enum error_code add_pattern(const struct reading *reading, struct split split, const char *text, bool plain)
{
    if (reading->t->splits == STEPS_MOST) return not_supported(reading, "pre_tokenizer", "so long a sequence");
    const enum error_code e = text ? pattern_open(&split.pattern, text, plain, reading->path, reading->err) : OK;
    reading->t->split[reading->t->splits++] = split;
    return e;
}

/* A Split finds pieces by an expression or a plain text; `behavior` says where its matches go. */
static enum error_code read_pattern(const struct reading *reading, const cJSON *o)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(o, "pattern");
    const char *expression = word(pattern, "Regex"), *text = word(pattern, "String"), *how = word(o, "behavior");
    struct split s = { .kind = SPLIT_PATTERN, .invert = flag(o, "invert", false) };
    size_t i = 0;
    while (i < sizeof names / sizeof *names && !is(how, names[i])) i++;
    if (i == sizeof names / sizeof *names) return not_supported(reading, "pre_tokenizer: Split: behavior", how);
    s.match = (enum split_match)i;
    if (!*expression && !*text) return not_supported(reading, "pre_tokenizer: Split", "an empty pattern");
    return add_pattern(reading, s, *expression ? expression : text, !*expression);
}

/* Older files have add_prefix_space instead of a prepend_scheme. */
static enum error_code read_metaspace(const struct reading *reading, const cJSON *o)
{
    const char *space = word(o, "replacement"), *scheme = word(o, "prepend_scheme");
    struct split s = { .kind = SPLIT_METASPACE, .match = MATCH_WITH_NEXT };
    if (!*space) return not_supported(reading, "pre_tokenizer: Metaspace", "no replacement");
    s.prepend = is(scheme, "never") ? PREPEND_NEVER : is(scheme, "first") ? PREPEND_FIRST : PREPEND_ALWAYS;
    if (!*scheme && !flag(o, "add_prefix_space", true)) s.prepend = PREPEND_NEVER;
    if ((s.space = text_copy(space)) == NULL) return tokenizer_read_no_memory(reading);
    return add_pattern(reading, s, flag(o, "split", true) ? space : NULL, true);
}

/* The splitters that are known; ByteLevel brings GPT-2's expression, unless it is told not to. */
static enum error_code read_split(const struct reading *reading, const char *type, const cJSON *o)
{
    if (is(type, "ByteLevel")) {
        reading->t->rule.byte_level = true;
        return add_pattern(reading, (struct split){ .kind = SPLIT_PATTERN,
                                                   .space_first = flag(o, "add_prefix_space", true) },
                           flag(o, "use_regex", true) ? GPT2_PATTERN : NULL, false);
    }
    if (is(type, "Split")) return read_pattern(reading, o);
    if (is(type, "Digits"))
        return add_pattern(reading, (struct split){ .kind = SPLIT_DIGITS, .match = flag(o, "individual_digits", false)
                                              ? MATCH_ISOLATED : MATCH_CONTIGUOUS }, "\\p{numeric}", false);
    if (is(type, "Metaspace")) return read_metaspace(reading, o);
    return not_supported(reading, "pre_tokenizer", type);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* The largest id decides the size of the tables, so ids are read twice. */
static enum error_code read_vocabulary(const struct reading *reading, const cJSON *vocab)
{
    const cJSON *one;
    int64_t id, most = -1;
    cJSON_ArrayForEach(one, vocab) {
        if (!json_whole(one, &id) || id < 0 || id >= 1 << 24)
            return fail(reading->err, ERR_FORMAT, "%s: model: vocab: %s: must be a number from 0 to %d",
                        reading->path, one->string, (1 << 24) - 1);
        most = id > most ? id : most;
    }
    reading->t->vocabulary = (int32_t)most + 1;
    if ((reading->t->bpe = bpe_open(reading->t->vocabulary)) == NULL) return tokenizer_read_no_memory(reading);
    cJSON_ArrayForEach(one, vocab) {
        (void)json_whole(one, &id);
        const enum error_code e = bpe_token(reading->t->bpe, one->string, strlen(one->string), (int32_t)id,
                                            reading->err);
        if (e) return fail_about(reading->err, e, reading->path);
    }
    return OK;
}

/* Merges stand in the file in the order of their ranks. */
static enum error_code read_merges(const struct reading *reading, const cJSON *merges)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, merges) {
        const char *both = cJSON_GetStringValue(one);
        /* A merge is one text with a blank between its two tokens, or a list of both. */
        const char *blank = both ? strchr(both, ' ') : NULL;
        const char *left = both ? both : cJSON_GetStringValue(cJSON_GetArrayItem(one, 0));
        const char *right = both ? blank + 1 : cJSON_GetStringValue(cJSON_GetArrayItem(one, 1));
        if ((both && !blank) || left == NULL || right == NULL)
            return fail(reading->err, ERR_FORMAT, "%s: model: merges: each must be two tokens", reading->path);
        const enum error_code e = bpe_merge(reading->t->bpe, left, both ? (size_t)(blank - both) : strlen(left), right,
                                            strlen(right), reading->err);
        if (e) return fail_about(reading->err, e, reading->path);
    }
    return OK;
}

/* Vocabulary, merges and the rule for characters without a token; other models than BPE are refused. */
static enum error_code read_model(const struct reading *reading, const cJSON *root)
{
    const cJSON *model, *vocab, *merges;
    enum error_code e = json_object(root, reading->path, "model", &model, reading->err);
    if (e) return e;
    const char *type = word(model, "type");
    if (*type && !is(type, "BPE")) return not_supported(reading, "model", type);
    if (*word(model, "continuing_subword_prefix") || *word(model, "end_of_word_suffix"))
        return not_supported(reading, "model", "a prefix or suffix of parts of words");
    if (json_has(model, "dropout")) return not_supported(reading, "model", "dropout");
    if ((e = json_object(model, reading->path, "vocab", &vocab, reading->err))) return e;
    if ((e = json_array(model, reading->path, "merges", &merges, reading->err))) return e;
    if ((e = read_vocabulary(reading, vocab)) || (e = read_merges(reading, merges))) return e;
    const char *unknown = word(model, "unk_token");
    reading->t->rule.byte_fallback = flag(model, "byte_fallback", false);
    reading->t->rule.whole_first = flag(model, "ignore_merges", false);
    reading->t->rule.fuse_unknown = flag(model, "fuse_unk", false);
    reading->t->rule.unknown = bpe_find(reading->t->bpe, unknown, strlen(unknown));
    if (*unknown && reading->t->rule.unknown < 0)
        return fail(reading->err, ERR_FORMAT, "%s: model: unk_token %s: is no token", reading->path, unknown);
    bpe_set_rule(reading->t->bpe, reading->t->rule);
    return OK;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

/* Added tokens may have ids above the vocabulary of the model. */
static enum error_code read_added(const struct reading *reading, const cJSON *root)
{
    struct tokenizer *t = reading->t;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "added_tokens"), *one;
    if (list == NULL || cJSON_IsNull(list)) return OK;
    if (!cJSON_IsArray(list)) return fail(reading->err, ERR_FORMAT, "%s: added_tokens: must be a list", reading->path);
    if ((t->added = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *t->added)) == NULL)
        return tokenizer_read_no_memory(reading);
    cJSON_ArrayForEach(one, list) {
        int64_t id;
        const char *content;
        enum error_code e = json_int(one, reading->path, "id", 0, 1 << 24, &id, reading->err);
        if (!e) e = json_string(one, reading->path, "content", &content, reading->err);
        if (e) return e;
        if (!*content) return not_supported(reading, "added_tokens", "an empty one");
        if (flag(one, "single_word", false)) return not_supported(reading, "added_tokens", "single_word");
        struct added *a = &t->added[t->addeds++];
        *a = (struct added){ .content = text_copy(content), .bytes = strlen(content), .id = (int32_t)id,
                             .special = flag(one, "special", false), .left = flag(one, "lstrip", false),
                             .right = flag(one, "rstrip", false), .normalized = flag(one, "normalized", false) };
        if (a->content == NULL) return tokenizer_read_no_memory(reading);
        t->begins[(uint8_t)*content] = 1;
        /* An added token may lie beyond the vocabulary of the model. */
        if (id >= t->vocabulary) t->vocabulary = (int32_t)id + 1;
    }
    return OK;
}

/* ---- what is put around a text ----------------------------------------------------------------------------------- */

/* Special tokens before the text itself go in front, special tokens after the text go behind. */
static enum error_code read_template(const struct reading *reading, const cJSON *o)
{
    const cJSON *single, *one, *tokens = cJSON_GetObjectItemCaseSensitive(o, "special_tokens");
    bool text = false;
    const enum error_code e = json_array(o, reading->path, "single", &single, reading->err);
    if (e) return e;
    cJSON_ArrayForEach(one, single) {
        const cJSON *token = cJSON_GetObjectItemCaseSensitive(one, "SpecialToken"), *id;
        /* This element is the text itself. */
        if (token == NULL) { text = true; continue; }
        cJSON_ArrayForEach(id, cJSON_GetObjectItemCaseSensitive(
                                   cJSON_GetObjectItemCaseSensitive(tokens, word(token, "id")), "ids")) {
            int64_t n;
            int *count = text ? &reading->t->afters : &reading->t->befores;
            if (*count == AROUND_MOST || !json_whole(id, &n) || n < 0 || n >= reading->t->vocabulary)
                return not_supported(reading, "post_processor: TemplateProcessing", word(token, "id"));
            (text ? reading->t->after : reading->t->before)[(*count)++] = (int32_t)n;
        }
    }
    return OK;
}

static enum error_code read_around(const struct reading *reading, const char *type, const cJSON *o)
{
    if (is(type, "ByteLevel")) return OK;                       /* it trims offsets, which nobody has here */
    return is(type, "TemplateProcessing") ? read_template(reading, o) : not_supported(reading, "post_processor", type);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* Decoders say what stands for a blank, and whether a first blank is removed. */
static enum error_code read_decoder(const struct reading *reading, const char *type, const cJSON *o)
{
    struct tokenizer *t = reading->t;
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(o, "pattern");
    const bool metaspace = is(type, "Metaspace"), replace = is(type, "Replace") && is(word(o, "content"), " ");
    if (metaspace || replace) {
        const char *space = metaspace ? word(o, "replacement") : word(pattern, "String");
        if (!*space) return not_supported(reading, "decoder", "an empty replacement");
        free(t->space);
        t->space = text_copy(space);
        if (metaspace) t->strip = !is(word(o, "prepend_scheme"), "never") && flag(o, "add_prefix_space", true);
        return t->space ? OK : tokenizer_read_no_memory(reading);
    }
    if (is(type, "Strip")) {
        int64_t start = 0, stop = 0;
        enum error_code e = json_int(o, reading->path, "start", 0, 1, &start, reading->err);
        if (!e) e = json_int(o, reading->path, "stop", 0, 0, &stop, reading->err);
        t->strip = start == 1;
        if (!e && !is(word(o, "content"), " "))
            e = not_supported(reading, "decoder: Strip", "another content than a blank");
        return e;
    }
    const bool known = is(type, "ByteLevel") || is(type, "ByteFallback") || is(type, "Fuse");
    return known ? OK : not_supported(reading, "decoder", type);
}

/* Added tokens come after the model, whose vocabulary they may enlarge. */
enum error_code tokenizer_read(struct tokenizer *tokenizer, const cJSON *root, const char *path, struct error *err)
{
    const struct reading r = { tokenizer, path, err };
    enum error_code e = read_each(&r, root, "normalizer", "normalizers", read_normal);
    if (!e) e = read_each(&r, root, "pre_tokenizer", "pretokenizers", read_split);
    if (!e) e = read_model(&r, root);
    if (!e) e = read_added(&r, root);
    if (!e) e = read_each(&r, root, "post_processor", "processors", read_around);
    return e ? e : read_each(&r, root, "decoder", "decoders", read_decoder);
}
