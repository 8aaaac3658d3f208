/* tokenizer_read.c -- the parts of a tokenizer.json. */
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

static enum error_code no_memory(const struct reading *r) { return fail(r->err, ERR_MEMORY, "%s: no memory", r->path); }

static enum error_code not_supported(const struct reading *r, const char *part, const char *what)
{
    return fail(r->err, ERR_FORMAT, "%s: %s: %s is not supported", r->path, part, what);
}

static bool flag(const cJSON *o, const char *key, bool usual)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsBool(x) ? cJSON_IsTrue(x) : usual;
}

static const char *word(const cJSON *o, const char *key)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key));
    return s ? s : "";
}

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

/* ---- a part that is one of several kinds, or a sequence of them -------------------------------------------------- */

typedef enum error_code read_fn(const struct reading *, const char *type, const cJSON *o);

static enum error_code read_each(const struct reading *r, const cJSON *root, const char *part, const char *list,
                                 read_fn *read)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(root, part), *all, *one;
    if (o == NULL || cJSON_IsNull(o)) return OK;
    if (!cJSON_IsObject(o)) return fail(r->err, ERR_FORMAT, "%s: %s: must be an object", r->path, part);
    if (!is(word(o, "type"), "Sequence")) return read(r, word(o, "type"), o);
    enum error_code e = json_array(o, r->path, list, &all, r->err);
    if (e) return e;
    cJSON_ArrayForEach(one, all)
        if ((e = read(r, word(one, "type"), one))) return e;
    return OK;
}

/* ---- normalizers ------------------------------------------------------------------------------------------------- */

static enum error_code read_normal(const struct reading *r, const char *type, const cJSON *o)
{
    struct normal *n = &r->t->normal[r->t->normals];
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(o, "pattern");
    if (r->t->normals == STEPS_MOST) return not_supported(r, "normalizer", "so long a sequence");
    if (is(type, "Prepend")) *n = (struct normal){ NORMAL_PREPEND, NULL, text_copy(word(o, "prepend")) };
    else if (is(type, "Replace") && *word(pattern, "String"))
        *n = (struct normal){ NORMAL_REPLACE, text_copy(word(pattern, "String")), text_copy(word(o, "content")) };
    else if (is(type, "NFC")) *n = (struct normal){ NORMAL_NFC, NULL, text_copy("") };
    else return not_supported(r, "normalizer", type);
    r->t->normals++;
    return n->to && (n->from || n->kind != NORMAL_REPLACE) ? OK : no_memory(r);
}

/* ---- splitters --------------------------------------------------------------------------------------------------- */

static enum error_code add_pattern(const struct reading *r, struct split s, const char *text, bool plain)
{
    if (r->t->splits == STEPS_MOST) return not_supported(r, "pre_tokenizer", "so long a sequence");
    const enum error_code e = text ? pattern_open(&s.pattern, text, plain, r->path, r->err) : OK;
    r->t->split[r->t->splits++] = s;
    return e;
}

static enum error_code read_pattern(const struct reading *r, const cJSON *o)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(o, "pattern");
    const char *expression = word(pattern, "Regex"), *text = word(pattern, "String"), *how = word(o, "behavior");
    struct split s = { .kind = SPLIT_PATTERN, .invert = flag(o, "invert", false) };
    size_t i = 0;
    while (i < sizeof names / sizeof *names && !is(how, names[i])) i++;
    if (i == sizeof names / sizeof *names) return not_supported(r, "pre_tokenizer: Split: behavior", how);
    s.match = (enum split_match)i;
    if (!*expression && !*text) return not_supported(r, "pre_tokenizer: Split", "an empty pattern");
    return add_pattern(r, s, *expression ? expression : text, !*expression);
}

static enum error_code read_metaspace(const struct reading *r, const cJSON *o)
{
    const char *space = word(o, "replacement"), *scheme = word(o, "prepend_scheme");
    struct split s = { .kind = SPLIT_METASPACE, .match = MATCH_WITH_NEXT };
    if (!*space) return not_supported(r, "pre_tokenizer: Metaspace", "no replacement");
    s.prepend = is(scheme, "never") ? PREPEND_NEVER : is(scheme, "first") ? PREPEND_FIRST : PREPEND_ALWAYS;
    if (!*scheme && !flag(o, "add_prefix_space", true)) s.prepend = PREPEND_NEVER;
    if ((s.space = text_copy(space)) == NULL) return no_memory(r);
    return add_pattern(r, s, flag(o, "split", true) ? space : NULL, true);
}

static enum error_code read_split(const struct reading *r, const char *type, const cJSON *o)
{
    if (is(type, "ByteLevel")) {
        r->t->rule.byte_level = true;
        return add_pattern(r, (struct split){ .kind = SPLIT_PATTERN, .space_first = flag(o, "add_prefix_space", true) },
                           flag(o, "use_regex", true) ? GPT2_PATTERN : NULL, false);
    }
    if (is(type, "Split")) return read_pattern(r, o);
    if (is(type, "Digits"))
        return add_pattern(r, (struct split){ .kind = SPLIT_DIGITS, .match = flag(o, "individual_digits", false)
                                              ? MATCH_ISOLATED : MATCH_CONTIGUOUS }, "\\p{numeric}", false);
    if (is(type, "Metaspace")) return read_metaspace(r, o);
    return not_supported(r, "pre_tokenizer", type);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static enum error_code read_vocabulary(const struct reading *r, const cJSON *vocab)
{
    const cJSON *one;
    int64_t id, most = -1;
    cJSON_ArrayForEach(one, vocab) {
        if (!json_whole(one, &id) || id < 0 || id >= 1 << 24)
            return fail(r->err, ERR_FORMAT, "%s: model: vocab: %s: must be a number from 0 to %d", r->path, one->string,
                        (1 << 24) - 1);
        most = id > most ? id : most;
    }
    r->t->vocabulary = (int32_t)most + 1;
    if ((r->t->bpe = bpe_open(r->t->vocabulary)) == NULL) return no_memory(r);
    cJSON_ArrayForEach(one, vocab) {
        (void)json_whole(one, &id);
        const enum error_code e = bpe_token(r->t->bpe, one->string, strlen(one->string), (int32_t)id, r->err);
        if (e) return fail_about(r->err, e, r->path);
    }
    return OK;
}

static enum error_code read_merges(const struct reading *r, const cJSON *merges)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, merges) {
        const char *both = cJSON_GetStringValue(one);
        /* A merge is one text with a blank between its two tokens, or a list of both. */
        const char *blank = both ? strchr(both, ' ') : NULL;
        const char *left = both ? both : cJSON_GetStringValue(cJSON_GetArrayItem(one, 0));
        const char *right = both ? blank + 1 : cJSON_GetStringValue(cJSON_GetArrayItem(one, 1));
        if ((both && !blank) || left == NULL || right == NULL)
            return fail(r->err, ERR_FORMAT, "%s: model: merges: each must be two tokens", r->path);
        const enum error_code e = bpe_merge(r->t->bpe, left, both ? (size_t)(blank - both) : strlen(left), right,
                                            strlen(right), r->err);
        if (e) return fail_about(r->err, e, r->path);
    }
    return OK;
}

static enum error_code read_model(const struct reading *r, const cJSON *root)
{
    const cJSON *model, *vocab, *merges;
    enum error_code e = json_object(root, r->path, "model", &model, r->err);
    if (e) return e;
    const char *type = word(model, "type");
    if (*type && !is(type, "BPE")) return not_supported(r, "model", type);
    if (*word(model, "continuing_subword_prefix") || *word(model, "end_of_word_suffix"))
        return not_supported(r, "model", "a prefix or suffix of parts of words");
    if (json_has(model, "dropout")) return not_supported(r, "model", "dropout");
    if ((e = json_object(model, r->path, "vocab", &vocab, r->err))) return e;
    if ((e = json_array(model, r->path, "merges", &merges, r->err))) return e;
    if ((e = read_vocabulary(r, vocab)) || (e = read_merges(r, merges))) return e;
    const char *unknown = word(model, "unk_token");
    r->t->rule.byte_fallback = flag(model, "byte_fallback", false);
    r->t->rule.whole_first = flag(model, "ignore_merges", false);
    r->t->rule.fuse_unknown = flag(model, "fuse_unk", false);
    r->t->rule.unknown = bpe_find(r->t->bpe, unknown, strlen(unknown));
    if (*unknown && r->t->rule.unknown < 0)
        return fail(r->err, ERR_FORMAT, "%s: model: unk_token %s: is no token", r->path, unknown);
    bpe_set_rule(r->t->bpe, r->t->rule);
    return OK;
}

/* ---- added tokens ------------------------------------------------------------------------------------------------ */

static int longest_first(const void *a, const void *b)
{
    const struct added *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : x->id - y->id;
}

static enum error_code read_added(const struct reading *r, const cJSON *root)
{
    struct tokenizer *t = r->t;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "added_tokens"), *one;
    if (list == NULL || cJSON_IsNull(list)) return OK;
    if (!cJSON_IsArray(list)) return fail(r->err, ERR_FORMAT, "%s: added_tokens: must be a list", r->path);
    if ((t->added = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *t->added)) == NULL) return no_memory(r);
    cJSON_ArrayForEach(one, list) {
        int64_t id;
        const char *content;
        enum error_code e = json_int(one, r->path, "id", 0, 1 << 24, &id, r->err);
        if (!e) e = json_string(one, r->path, "content", &content, r->err);
        if (e) return e;
        if (!*content) return not_supported(r, "added_tokens", "an empty one");
        if (flag(one, "single_word", false)) return not_supported(r, "added_tokens", "single_word");
        struct added *a = &t->added[t->addeds++];
        *a = (struct added){ .content = text_copy(content), .bytes = strlen(content), .id = (int32_t)id,
                             .special = flag(one, "special", false), .left = flag(one, "lstrip", false),
                             .right = flag(one, "rstrip", false), .normalized = flag(one, "normalized", false) };
        if (a->content == NULL) return no_memory(r);
        t->begins[(uint8_t)*content] = 1;
        if (id >= t->vocabulary) t->vocabulary = (int32_t)id + 1;
    }
    /* The longest of added tokens that begin alike is tried first. */
    qsort(t->added, (size_t)t->addeds, sizeof *t->added, longest_first);
    return OK;
}

/* ---- what is put around a text ----------------------------------------------------------------------------------- */

static enum error_code read_template(const struct reading *r, const cJSON *o)
{
    const cJSON *single, *one, *tokens = cJSON_GetObjectItemCaseSensitive(o, "special_tokens");
    bool text = false;
    const enum error_code e = json_array(o, r->path, "single", &single, r->err);
    if (e) return e;
    cJSON_ArrayForEach(one, single) {
        const cJSON *token = cJSON_GetObjectItemCaseSensitive(one, "SpecialToken"), *id;
        if (token == NULL) { text = true; continue; }
        cJSON_ArrayForEach(id, cJSON_GetObjectItemCaseSensitive(
                                   cJSON_GetObjectItemCaseSensitive(tokens, word(token, "id")), "ids")) {
            int64_t n;
            int *count = text ? &r->t->afters : &r->t->befores;
            if (*count == AROUND_MOST || !json_whole(id, &n) || n < 0 || n >= r->t->vocabulary)
                return not_supported(r, "post_processor: TemplateProcessing", word(token, "id"));
            (text ? r->t->after : r->t->before)[(*count)++] = (int32_t)n;
        }
    }
    return OK;
}

static enum error_code read_around(const struct reading *r, const char *type, const cJSON *o)
{
    if (is(type, "ByteLevel")) return OK;                       /* it trims offsets, which nobody has here */
    return is(type, "TemplateProcessing") ? read_template(r, o) : not_supported(r, "post_processor", type);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

static enum error_code read_decoder(const struct reading *r, const char *type, const cJSON *o)
{
    struct tokenizer *t = r->t;
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(o, "pattern");
    const bool metaspace = is(type, "Metaspace"), replace = is(type, "Replace") && is(word(o, "content"), " ");
    if (metaspace || replace) {
        const char *space = metaspace ? word(o, "replacement") : word(pattern, "String");
        if (!*space) return not_supported(r, "decoder", "an empty replacement");
        free(t->space);
        t->space = text_copy(space);
        if (metaspace) t->strip = !is(word(o, "prepend_scheme"), "never") && flag(o, "add_prefix_space", true);
        return t->space ? OK : no_memory(r);
    }
    if (is(type, "Strip")) {
        int64_t start = 0, stop = 0;
        enum error_code e = json_int(o, r->path, "start", 0, 1, &start, r->err);
        if (!e) e = json_int(o, r->path, "stop", 0, 0, &stop, r->err);
        t->strip = start == 1;
        if (!e && !is(word(o, "content"), " ")) e = not_supported(r, "decoder: Strip", "another content than a blank");
        return e;
    }
    const bool known = is(type, "ByteLevel") || is(type, "ByteFallback") || is(type, "Fuse");
    return known ? OK : not_supported(r, "decoder", type);
}

enum error_code tokenizer_read(struct tokenizer *t, const cJSON *root, const char *path, struct error *err)
{
    const struct reading r = { t, path, err };
    enum error_code e = read_each(&r, root, "normalizer", "normalizers", read_normal);
    if (!e) e = read_each(&r, root, "pre_tokenizer", "pretokenizers", read_split);
    if (!e) e = read_model(&r, root);
    if (!e) e = read_added(&r, root);
    if (!e) e = read_each(&r, root, "post_processor", "processors", read_around);
    return e ? e : read_each(&r, root, "decoder", "decoders", read_decoder);
}
