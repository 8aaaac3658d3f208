/* wordlevel.c -- the model WordLevel: a word is a token, or the unknown one.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, or of a word without a token where the file has no unknown
 * one; ERR_MEMORY.
 */
#include "ref/text/models/model.h"
#include <stdlib.h>
#include <string.h>

struct wordlevel {
    struct vocabulary *vocabulary;      /* all words */
    int32_t unknown;                    /* the token of other words; -1: they are an error */
};

static enum error_code wordlevel_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const char *unknown;
    enum error_code e = step_state(state, sizeof(struct wordlevel), reading);
    struct wordlevel *wordlevel = *state;
    if (!e) e = step_keys(reading, object, "vocab unk_token");
    if (!e) e = step_text(reading, object, "unk_token", NULL, &unknown);
    if (!e) e = vocabulary_read(&wordlevel->vocabulary, reading, object);
    if (!e) wordlevel->unknown = vocabulary_find(wordlevel->vocabulary, unknown, strlen(unknown));
    return e;
}

static enum error_code wordlevel_apply(void *state, const char *word, size_t bytes, struct token_ids *to,
                                       struct error *err)
{
    const struct wordlevel *wordlevel = state;
    const int32_t own = vocabulary_find(wordlevel->vocabulary, word, bytes), id = own < 0 ? wordlevel->unknown : own;
    if (id < 0) return fail(err, ERR_FORMAT, "unk_token is no token of the model, and the text needs it");
    return token_ids_add(to, id) ? OK : fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)to->count);
}

static const struct vocabulary *wordlevel_vocabulary(const void *state)
{
    return ((const struct wordlevel *)state)->vocabulary;
}

static void wordlevel_close(void *state)
{
    struct wordlevel *wordlevel = state;
    vocabulary_close(wordlevel->vocabulary);
    free(wordlevel);
}

const struct model_kind model_wordlevel = { { "WordLevel", wordlevel_read, wordlevel_close }, wordlevel_apply,
                                            wordlevel_vocabulary };
