/* wordpiece.c -- the model WordPiece: a word is the longest token that it begins with, and so on with what is left.
 *
 * Source   Y. Wu et al., "Google's neural machine translation system", arXiv:1609.08144, section 4.1; the search is the
 *          one of BERT's tokenizer (J. Devlin et al., arXiv:1810.04805).
 * Method   Tokens within a word have a prefix in their names, such as ##.  A word of which some rest has no token is
 *          the unknown token as a whole, and so is a word of too many characters.  Time: token_trie.h.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, or of an unknown word where the file has no unknown token;
 * ERR_MEMORY.
 */
#include "ref/text/models/model.h"
#include "ref/text/models/token_trie.h"
#include <stdlib.h>
#include <string.h>

/* A length that no word has; the library reads any number. */
#define LENGTH_MOST ((int64_t)1 << 53)

struct wordpiece {
    struct vocabulary *vocabulary;      /* all tokens, with their prefixes */
    struct token_trie trie;             /* their names */
    int32_t within;                     /* the node after the prefix; -1: no token has the prefix */
    int32_t unknown;                    /* the token of other words; -1: they are an error */
    int64_t longest;                    /* characters that a word has at most */
};

static enum error_code wordpiece_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const char *unknown, *prefix;
    enum error_code e = step_state(state, sizeof(struct wordpiece), reading);
    struct wordpiece *wordpiece = *state;
    if (!e) e = step_keys(reading, object, "vocab unk_token continuing_subword_prefix max_input_chars_per_word");
    if (!e) e = step_text(reading, object, "unk_token", NULL, &unknown);
    if (!e) e = step_text(reading, object, "continuing_subword_prefix", NULL, &prefix);
    if (!e) e = step_count(reading, object, "max_input_chars_per_word", LENGTH_MOST, -1, &wordpiece->longest);
    if (!e) e = vocabulary_read(&wordpiece->vocabulary, reading, object);
    if (!e) e = token_trie_open(&wordpiece->trie, wordpiece->vocabulary, reading);
    if (e) return e;
    wordpiece->unknown = vocabulary_find(wordpiece->vocabulary, unknown, strlen(unknown));
    wordpiece->within = token_trie_walk(&wordpiece->trie, prefix, strlen(prefix));
    return OK;
}

/* The longest token from a node on.  @return its bytes of the text; 0: there is none. */
static size_t wordpiece_longest(const struct token_trie *trie, int32_t node, const char *text, size_t bytes,
                                int32_t *id)
{
    size_t longest = 0;
    for (size_t i = 0; i < bytes && node >= 0; i++) {
        node = token_trie_step(trie, node, text[i]);
        if (node >= 0 && trie->id[node] >= 0) *id = trie->id[node], longest = i + 1;
    }
    return longest;
}

static bool wordpiece_is_long(const struct wordpiece *wordpiece, const char *word, size_t bytes)
{
    int64_t characters = 0;
    for (size_t i = 0; i < bytes; i++) characters += ((uint8_t)word[i] & 0xC0) != 0x80;
    return characters > wordpiece->longest;
}

static enum error_code wordpiece_apply(void *state, const char *word, size_t bytes, struct token_ids *to,
                                       struct error *err)
{
    const struct wordpiece *wordpiece = state;
    const int64_t before = to->count;
    bool ok = true, known = !wordpiece_is_long(wordpiece, word, bytes);
    for (size_t at = 0, n; ok && known && at < bytes; at += n) {
        int32_t id = -1;
        n = wordpiece_longest(&wordpiece->trie, at == 0 ? 0 : wordpiece->within, word + at, bytes - at, &id);
        known = n > 0;
        ok = !known || token_ids_add(to, id);
    }
    if (ok && !known) {
        to->count = before;
        if (wordpiece->unknown < 0)
            return fail(err, ERR_FORMAT, "unk_token is no token of the model, and the text needs it");
        ok = token_ids_add(to, wordpiece->unknown);
    }
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)to->count);
}

static const struct vocabulary *wordpiece_vocabulary(const void *state)
{
    return ((const struct wordpiece *)state)->vocabulary;
}

static void wordpiece_close(void *state)
{
    struct wordpiece *wordpiece = state;
    vocabulary_close(wordpiece->vocabulary);
    token_trie_close(&wordpiece->trie);
    free(wordpiece);
}

const struct model_kind model_wordpiece = { { "WordPiece", wordpiece_read, wordpiece_close }, wordpiece_apply,
                                            wordpiece_vocabulary };
