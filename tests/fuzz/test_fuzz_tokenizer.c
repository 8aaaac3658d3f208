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

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct tokenizer *t;
    size_t head, bytes;
    const char *text = (const char *)text_after(data, size, &head);
    const size_t length = size - (size_t)((const uint8_t *)text - data);
    struct token_ids ids = { 0 }, again = { 0 };
    char *back = NULL;
    const enum error_code e = tokenizer_open(&t, as_file(data, head), &err);
    if (e != OK) {
        must(e != ERR_USAGE && err.text[0] != '\0' && t == NULL, "refused without a word");
        return;
    }
    if (tokenizer_encode(t, text, length, true, &ids, NULL, &err) != OK) {
        must(strstr(err.text, "too many steps") || strstr(err.text, "the text needs it"), "%s", err.text);
        token_ids_free(&ids);
        tokenizer_close(t);
        return;
    }
    must(tokenizer_encode(t, text, length, true, &again, NULL, &err) == OK, "%s", err.text);
    must(ids.count == again.count && (ids.count == 0 || memcmp(ids.id, again.id, (size_t)ids.count * 4) == 0),
         "other tokens the second time");
    must(tokenizer_decode(t, ids.id, ids.count, true, &back, &bytes, &err) == OK, "%s", err.text);
    free(back);
    token_ids_free(&ids), token_ids_free(&again);
    tokenizer_close(t);
}

FUZZ_TARGET("tokenizer")
