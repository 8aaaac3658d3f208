/* A tokenizer.json from anybody, up to an empty line, and then a text: what is accepted gives tokens that exist, the
 * same ones each time.
 * tier: check
 */
#include "ref/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static const uint8_t *text_after(const uint8_t *data, size_t size, size_t *head)
{
    for (*head = 0; *head + 1 < size; ++*head)
        if (data[*head] == '\n' && data[*head + 1] == '\n') return data + *head + 2;
    *head = size;
    return data + size;
}

/* These are the texts' or the steps' own limits, which are said; everything else is a bug. */
static bool is_a_limit(const struct error *err)
{
    return strstr(err->text, "too many steps") || strstr(err->text, "the text needs it") ||
           strstr(err->text, "steps of the tokenizer make more") || strstr(err->text, "does not let cut");
}

/* The text comes back in two ways, or a limit is named. */
static void try_back(const struct tokenizer *t, const struct token_ids *ids)
{
    struct error err = { 0 };
    char *back = NULL;
    size_t bytes;
    const int64_t some = ids->count / 2;
    if (tokenizer_decode(t, ids->id, ids->count, true, &back, &bytes, &err) != OK)
        must(is_a_limit(&err), "%s", err.text);
    free(back), back = NULL;
    if (tokenizer_decode_begun(t, ids->id, some, false, &back, &bytes, &err) != OK)
        must(is_a_limit(&err), "%s", err.text);
    free(back);
}

/* With the file's limits, tokens exist, too. */
static void try_limits(struct tokenizer *t, const char *text, size_t length)
{
    struct error err = { 0 };
    struct token_ids ids = { 0 };
    tokenizer_obey_limits(t, true);
    if (tokenizer_encode(t, text, length, true, &ids, NULL, &err) != OK) must(is_a_limit(&err), "%s", err.text);
    for (int64_t i = 0; i < ids.count; i++)
        must(ids.id[i] >= 0 && ids.id[i] < tokenizer_vocabulary(t), "%d is no token", (int)ids.id[i]);
    token_ids_free(&ids);
}

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct tokenizer *t;
    size_t head;
    const char *text = (const char *)text_after(data, size, &head);
    const size_t length = size - (size_t)((const uint8_t *)text - data);
    struct token_ids ids = { 0 }, again = { 0 };
    const enum error_code e = tokenizer_open(&t, as_file(data, head), &err);
    if (e != OK) {
        must(e != ERR_USAGE && err.text[0] != '\0' && t == NULL, "refused without a word");
        return;
    }
    if (tokenizer_encode(t, text, length, true, &ids, NULL, &err) != OK) {
        must(is_a_limit(&err), "%s", err.text);
        token_ids_free(&ids);
        tokenizer_close(t);
        return;
    }
    must(tokenizer_encode(t, text, length, true, &again, NULL, &err) == OK, "%s", err.text);
    must(ids.count == again.count && (ids.count == 0 || memcmp(ids.id, again.id, (size_t)ids.count * 4) == 0),
         "other tokens the second time");
    try_back(t, &ids);
    try_limits(t, text, length);
    token_ids_free(&ids), token_ids_free(&again);
    tokenizer_close(t);
}

FUZZ_TARGET("tokenizer")
