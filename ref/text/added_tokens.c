/* added_tokens.c -- reads added tokens and finds them in texts.  tokenizer.c calls this file.  Errors are ERR_FORMAT,
 * ERR_MEMORY and those of who takes what is between tokens. */
#include "ref/text/added_tokens.h"
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static enum error_code added_token_read(struct added_token *token, struct step_reading *reading, const cJSON *object)
{
    int64_t id = 0;
    reading->kind = NULL;
    enum error_code e = step_keys(reading, object, "id content single_word lstrip rstrip normalized special");
    if (!e) e = step_count(reading, object, "id", TOKENS_MOST - 1, -1, &id);
    if (!e) e = step_text_copy(reading, object, "content", NULL, &token->content);
    if (!e) e = step_flag(reading, object, "single_word", false, &token->single_word);
    if (!e) e = step_flag(reading, object, "lstrip", false, &token->left);
    if (!e) e = step_flag(reading, object, "rstrip", false, &token->right);
    if (!e) e = step_flag(reading, object, "special", false, &token->special);
    if (!e) e = step_flag(reading, object, "normalized", !token->special, &token->normalized);
    if (e) return e;
    token->id = (int32_t)id;
    return *token->content ? OK : step_refuse(reading, "an empty one");
}

/* The name is normalized like the text in which it is looked for.  A NUL stands after it. */
static enum error_code added_token_normalize(struct added_token *token, const struct steps *normalizers,
                                             struct error *err)
{
    struct text_buffer text = { 0 }, spare = { 0 };
    size_t first = 0;
    enum error_code e = text_buffer_add(&text, token->content, strlen(token->content), err);
    if (!e && token->normalized) e = normalizers_apply(normalizers, &text, &spare, &first, err);
    const size_t bytes = text.bytes;
    if (!e) e = text_buffer_add(&text, "", 1, err);
    text_buffer_free(&spare);
    token->pattern = text.text, token->bytes = bytes;
    return e;
}

/* Tokens that are looked for in the text as it is stand first.  A pattern stands before longer ones that begin with
 * it. */
static int added_token_order(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;
    const size_t both = x->bytes < y->bytes ? x->bytes : y->bytes;
    const int order = both ? memcmp(x->pattern, y->pattern, both) : 0;
    if (x->normalized != y->normalized) return x->normalized - y->normalized;
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* A place of the list by its id. */
struct placed_id { int32_t id; int place; };

static int placed_id_order(const void *a, const void *b)
{
    const struct placed_id *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static enum error_code added_tokens_by_ids(struct added_tokens *added_tokens, const struct step_reading *reading)
{
    const size_t n = (size_t)added_tokens->count;
    struct placed_id *placed = malloc((n + 1) * sizeof *placed);
    added_tokens->by_id = malloc((n + 1) * sizeof *added_tokens->by_id);
    const bool ok = placed && added_tokens->by_id;
    for (size_t i = 0; ok && i < n; i++) placed[i] = (struct placed_id){ added_tokens->token[i].id, (int)i };
    if (ok) qsort(placed, n, sizeof *placed, placed_id_order);
    for (size_t i = 0; ok && i < n; i++) added_tokens->by_id[i] = placed[i].place;
    free(placed);
    return ok ? OK : step_no_memory(reading);
}

/* A token that a file lists twice, in the same words, is one: Yi's file has such. */
static bool added_tokens_are_one(const struct added_token *a, const struct added_token *b)
{
    return a->id == b->id && strcmp(a->content, b->content) == 0 && a->special == b->special &&
           a->single_word == b->single_word && a->left == b->left && a->right == b->right;
}

static void added_tokens_drop_repeated(struct added_tokens *added_tokens)
{
    struct added_token *const token = added_tokens->token;
    int kept = 0;
    for (int i = 0; i < added_tokens->count; i++) {
        const bool repeated = kept && added_token_order(&token[kept - 1], &token[i]) == 0 &&
                              added_tokens_are_one(&token[kept - 1], &token[i]);
        if (!repeated) { token[kept++] = token[i]; continue; }
        free(token[i].content), free(token[i].pattern);
    }
    added_tokens->count = kept;
}

/* The library takes one of two equal patterns by chance. */
static enum error_code added_tokens_sort(struct added_tokens *added_tokens, const struct step_reading *reading)
{
    struct added_token *const token = added_tokens->token;
    qsort(token, (size_t)added_tokens->count, sizeof *token, added_token_order);
    added_tokens_drop_repeated(added_tokens);
    for (int i = 1; i < added_tokens->count; i++)
        if (token[i].bytes && added_token_order(&token[i - 1], &token[i]) == 0)
            return fail(reading->err, ERR_FORMAT, "%s: added_tokens: %s and %s: the same text stands for both",
                        reading->path, token[i - 1].content, token[i].content);
    for (int normalized = 0, at = 0; normalized < 2; normalized++)
        for (int byte = 0; byte <= 256; byte++) {
            /* An empty pattern stands nowhere, and so in no range. */
            for (; at < added_tokens->count && token[at].normalized == normalized; at++)
                if (token[at].bytes && (uint8_t)*token[at].pattern >= byte) break;
            added_tokens->begins[normalized][byte] = at;
        }
    return added_tokens_by_ids(added_tokens, reading);
}

/* A token that the model has keeps its id; others are counted on from the model. */
static enum error_code added_token_check(const struct added_token *token, const struct step_reading *reading,
                                         const struct vocabulary *names, int32_t *next)
{
    const int32_t found = vocabulary_find(names, token->content, strlen(token->content));
    const int32_t id = found >= 0 ? found : (*next)++;
    if (id == token->id) return OK;
    return fail(reading->err, ERR_FORMAT, "%s: added_tokens: %s: its id is %d, but the library counts on from the "
                "model and takes %d", reading->path, token->content, (int)token->id, (int)id);
}

static int added_content_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Decoding shows the normalized name of a token, and the library asks by that name whether a token is special. */
static enum error_code added_tokens_hide(struct added_tokens *added_tokens, const struct step_reading *reading)
{
    size_t specials = 0;
    char **special = malloc(((size_t)added_tokens->count + 1) * sizeof *special);
    if (special == NULL) return step_no_memory(reading);
    for (int i = 0; i < added_tokens->count; i++)
        if (added_tokens->token[i].special) special[specials++] = added_tokens->token[i].content;
    qsort(special, specials, sizeof *special, added_content_order);
    for (int i = 0; i < added_tokens->count; i++) {
        struct added_token *token = &added_tokens->token[i];
        token->hidden = token->bytes && bsearch(&token->pattern, special, specials, sizeof *special,
                                                added_content_order) != NULL;
    }
    free(special);
    return OK;
}

enum error_code added_tokens_read(struct added_tokens *added_tokens, struct step_reading *reading, const cJSON *root,
                                  const struct vocabulary *names, const struct steps *normalizers)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "added_tokens"), *one;
    int32_t next = vocabulary_count(names);
    reading->part = "added_tokens", reading->kind = NULL;
    if (list == NULL || cJSON_IsNull(list)) return OK;
    if (!cJSON_IsArray(list)) return step_wrong(reading, "must be a list");
    added_tokens->token = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *added_tokens->token);
    if (added_tokens->token == NULL) return step_no_memory(reading);
    cJSON_ArrayForEach(one, list) {
        struct added_token *token = &added_tokens->token[added_tokens->count++];
        enum error_code e = added_token_read(token, reading, one);
        if (!e) e = added_token_check(token, reading, names, &next);
        if (!e) e = added_token_normalize(token, normalizers, reading->err);
        if (e) return e;
        /* An added token may lie beyond the vocabulary of the model. */
        if (token->id >= reading->vocabulary) reading->vocabulary = token->id + 1;
    }
    (void)character_set_add(&added_tokens->word, "rust_word");
    if (added_tokens->word.no_memory) return step_no_memory(reading);
    const enum error_code e = added_tokens_sort(added_tokens, reading);
    return e ? e : added_tokens_hide(added_tokens, reading);
}

void added_tokens_close(struct added_tokens *added_tokens)
{
    for (int i = 0; i < added_tokens->count; i++)
        free(added_tokens->token[i].content), free(added_tokens->token[i].pattern);
    free(added_tokens->token), free(added_tokens->by_id);
    character_set_free(&added_tokens->word);
    *added_tokens = (struct added_tokens){ 0 };
}

const struct added_token *added_tokens_by_id(const struct added_tokens *added_tokens, int32_t id)
{
    int low = 0, high = added_tokens->count;
    while (low < high) {
        const int middle = (low + high) / 2;
        const struct added_token *token = &added_tokens->token[added_tokens->by_id[middle]];
        if (token->id == id) return token;
        if (token->id < id) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* The first place of [low, high) whose pattern has at least this byte at `at`; all are longer than that. */
static int added_tokens_from(const struct added_token *token, int low, int high, size_t at, int byte)
{
    while (low < high) {
        const int middle = (low + high) / 2;
        if ((uint8_t)token[middle].pattern[at] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The longest token that the text begins with.  Those that begin with its first `at` bytes are [low, high); the token
 * that is these bytes stands first. */
static const struct added_token *added_token_at(const struct added_tokens *added_tokens, const char *text, size_t bytes,
                                                bool normalized)
{
    const int *const begins = added_tokens->begins[normalized];
    const struct added_token *token = added_tokens->token, *longest = NULL;
    int low = begins[(uint8_t)*text], high = begins[(uint8_t)*text + 1];
    for (size_t at = 1; low < high; at++) {
        if (token[low].bytes == at) longest = &token[low++];
        if (at == bytes) break;
        const int byte = (uint8_t)text[at];
        low = added_tokens_from(token, low, high, at, byte);
        high = added_tokens_from(token, low, high, at, byte + 1);
    }
    return longest;
}

/* The character before a place, or behind it; of the ends of a text 0, which is in no word. */
static uint32_t character_before(const char *text, size_t at)
{
    uint32_t c = 0;
    size_t from = at;
    if (at == 0) return 0;
    do from--; while (from > 0 && ((uint8_t)text[from] & 0xC0) == 0x80);
    (void)utf8_first(text + from, at - from, &c);
    return c;
}

static uint32_t character_behind(const char *text, size_t bytes, size_t at)
{
    uint32_t c = 0;
    (void)utf8_first(text + at, bytes - at, &c);
    return c;
}

static bool added_token_fits(const struct added_tokens *added_tokens, const struct added_token *token,
                             struct piece piece, size_t begin, size_t end)
{
    const struct character_set *word = &added_tokens->word;
    return !token->single_word || (!character_set_has(word, character_before(piece.text, begin)) &&
                                   !character_set_has(word, character_behind(piece.text, piece.bytes, end)));
}

/* Where white space before `to` begins. */
static size_t blank_before(const char *text, size_t to)
{
    for (size_t at = to; at > 0; to = at) {
        uint32_t c;
        do at--; while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
        if (utf8_first(text + at, to - at, &c) <= 0 || !is_in_class(c, "s")) break;
    }
    return to;
}

/* Where white space after `at` ends. */
static size_t blank_after(const char *text, size_t bytes, size_t at)
{
    uint32_t c;
    while (at < bytes) {
        const int n = utf8_first(text + at, bytes - at, &c);
        if (n <= 0 || !is_in_class(c, "s")) break;
        at += (size_t)n;
    }
    return at;
}

/* Tokens are found first, each behind the one before it; then they take white space, also what another has taken. */
enum error_code added_tokens_find(const struct added_tokens *added_tokens, struct piece piece, bool normalized,
                                  struct piece_taker *between, struct token_ids *to, struct error *err)
{
    const int *const begins = added_tokens->begins[normalized];
    size_t done = 0;
    /* Without such tokens nothing is looked for. */
    for (size_t at = begins[0] < begins[256] ? 0 : piece.bytes; at < piece.bytes;) {
        const uint8_t first = (uint8_t)piece.text[at];
        if (begins[first] == begins[first + 1]) { at++; continue; }
        const struct added_token *token = added_token_at(added_tokens, piece.text + at, piece.bytes - at, normalized);
        if (token == NULL) { at++; continue; }
        size_t begin = at, end = at + token->bytes;
        at = end;
        if (!added_token_fits(added_tokens, token, piece, begin, end)) continue;
        if (token->left) begin = blank_before(piece.text, begin);
        if (token->left && begin < done) begin = done;
        if (token->right) end = blank_after(piece.text, piece.bytes, end);
        if (begin > done) {
            const enum error_code e = piece_pass(between, piece_part(piece, done, begin), err);
            if (e) return e;
        }
        /* The white space before it may have taken all of a token of white space, which then is none. */
        if (begin < end && !token_ids_add(to, token->id)) return fail(err, ERR_MEMORY, "no memory for tokens");
        done = begin < end ? end : begin;
    }
    return done < piece.bytes ? piece_pass(between, piece_part(piece, done, piece.bytes), err) : OK;
}
