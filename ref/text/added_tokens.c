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

/* The name is normalized like the text in which it is looked for. */
static enum error_code added_token_normalize(struct added_token *token, const struct steps *normalizers,
                                             struct error *err)
{
    struct text_buffer text = { 0 }, spare = { 0 };
    size_t first = 0;
    enum error_code e = text_buffer_add(&text, token->content, strlen(token->content), err);
    if (!e && token->normalized) e = normalizers_apply(normalizers, &text, &spare, &first, err);
    text_buffer_free(&spare);
    token->pattern = text.text, token->bytes = text.bytes;
    return e;
}

/* Tokens of one length are in the order of their ids. */
static int added_token_order(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;
    const int first = x->bytes ? (uint8_t)*x->pattern : 0, other = y->bytes ? (uint8_t)*y->pattern : 0;
    if (first != other) return first - other;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : x->id - y->id;
}

static void added_tokens_sort(struct added_tokens *added_tokens)
{
    qsort(added_tokens->token, (size_t)added_tokens->count, sizeof *added_tokens->token, added_token_order);
    for (int byte = 0, at = 0; byte <= 256; byte++) {
        while (at < added_tokens->count && (added_tokens->token[at].bytes == 0 ||
                                            (uint8_t)*added_tokens->token[at].pattern < byte)) at++;
        added_tokens->begins[byte] = at;
    }
}

/* A token that the model has, or that stood in the list before, keeps its id; others are counted on from the model. */
static int32_t added_token_id(const struct added_tokens *added_tokens, const char *content,
                              const struct vocabulary *names, int32_t *next)
{
    const int32_t id = vocabulary_find(names, content, strlen(content));
    for (int i = 0; i + 1 < added_tokens->count; i++)
        if (strcmp(added_tokens->token[i].content, content) == 0) return added_tokens->token[i].id;
    return id >= 0 ? id : (*next)++;
}

/* Decoding shows the normalized name of a token, and the library asks by that name whether a token is special. */
static void added_tokens_hide(struct added_tokens *added_tokens)
{
    for (int i = 0; i < added_tokens->count; i++) {
        struct added_token *token = &added_tokens->token[i];
        token->hidden = token->special && strlen(token->content) == token->bytes &&
            memcmp(token->content, token->pattern, token->bytes) == 0;
        for (int k = 0; k < added_tokens->count && token->normalized && !token->hidden; k++) {
            const struct added_token *other = &added_tokens->token[k];
            token->hidden = other->special && strlen(other->content) == token->bytes && token->bytes > 0 &&
                memcmp(other->content, token->pattern, token->bytes) == 0;
        }
    }
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
        if (!e) e = added_token_normalize(token, normalizers, reading->err);
        if (e) return e;
        const int32_t id = added_token_id(added_tokens, token->content, names, &next);
        if (id != token->id)
            return fail(reading->err, ERR_FORMAT, "%s: added_tokens: %s: its id is %d, but the library counts on from "
                        "the model and takes %d", reading->path, token->content, (int)token->id, (int)id);
        /* An added token may lie beyond the vocabulary of the model. */
        if (token->id >= reading->vocabulary) reading->vocabulary = token->id + 1;
    }
    added_tokens_sort(added_tokens);
    added_tokens_hide(added_tokens);
    (void)character_set_add(&added_tokens->word, "rust_word");
    return added_tokens->word.no_memory ? step_no_memory(reading) : OK;
}

void added_tokens_close(struct added_tokens *added_tokens)
{
    for (int i = 0; i < added_tokens->count; i++)
        free(added_tokens->token[i].content), free(added_tokens->token[i].pattern);
    free(added_tokens->token);
    character_set_free(&added_tokens->word);
    *added_tokens = (struct added_tokens){ 0 };
}

const struct added_token *added_tokens_by_id(const struct added_tokens *added_tokens, int32_t id)
{
    for (int i = 0; i < added_tokens->count; i++)
        if (added_tokens->token[i].id == id) return &added_tokens->token[i];
    return NULL;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* The longest token that the text begins with; an empty pattern stands nowhere. */
static const struct added_token *added_token_at(const struct added_tokens *added_tokens, const char *text, size_t bytes,
                                                bool normalized)
{
    const uint8_t first = (uint8_t)*text;
    for (int i = added_tokens->begins[first]; i < added_tokens->begins[first + 1]; i++) {
        const struct added_token *token = &added_tokens->token[i];
        if (token->normalized == normalized && token->bytes > 0 && token->bytes <= bytes &&
            memcmp(text, token->pattern, token->bytes) == 0) return token;
    }
    return NULL;
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
    size_t done = 0;
    for (size_t at = 0; at < piece.bytes;) {
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
