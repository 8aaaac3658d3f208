/* unigram.c -- the model Unigram: the tokens of a word whose scores have the largest sum.
 *
 * Source   T. Kudo, "Subword regularization", arXiv:1804.10959, section 3.2.
 * Method   Viterbi's: for each place of the word, the best tokens that end there, from left to right.  The score of a
 *          token is the logarithm of its probability.  A character that is no token may be unknown, for the lowest
 *          score less 10; neighbours that are unknown are one.  What is unknown is looked up once more, then written as
 *          bytes if the file says so.  Of two sums that are equal the one found first stays: that of the longest last
 *          token.  Sums are fp64, in the order of the word, as the library `tokenizers` has them.  Time: token_trie.h.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, or of a character without a token where the file has no
 * unknown one; ERR_MEMORY.
 */
#include "ref/text/models/model.h"
#include "ref/text/models/token_trie.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library has this number, and sentencepiece, too. */
static const double unknown_penalty = 10;

/* Places are numbers of 32 bits. */
#define WORD_MOST ((size_t)INT32_MAX - 1)

/* The best way to a place of the word: its last token, and where that begins. */
struct best { double score; int32_t from, id; };

/* No way leads here yet. */
enum { NOWHERE = -1 };

struct unigram {
    struct vocabulary *vocabulary;      /* all tokens */
    struct token_trie trie;             /* their names */
    double *score;                      /* [tokens] */
    double unknown_score;               /* of a character that is no token */
    int32_t unknown;                    /* the token of such; -1: they are an error */
    int32_t of_byte[256];               /* <0x00> ...; -1: none, or no byte fallback */
    struct best *best;                  /* [room] of the word at hand */
    size_t room;
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static enum error_code unigram_read_token(struct unigram *unigram, const struct step_reading *reading,
                                          const cJSON *pair, int32_t id)
{
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(pair, 0));
    const cJSON *score = cJSON_GetArrayItem(pair, 1);
    if (cJSON_GetArraySize(pair) != 2 || name == NULL || !cJSON_IsNumber(score))
        return step_wrong(reading, "vocab: must be a list of names with a score each");
    unigram->score[id] = score->valuedouble;
    if (score->valuedouble - unknown_penalty < unigram->unknown_score)
        unigram->unknown_score = score->valuedouble - unknown_penalty;
    const enum error_code e = vocabulary_add(unigram->vocabulary, name, strlen(name), id, reading->err);
    return e ? fail_about(reading->err, e, reading->path) : OK;
}

/* Ids are the places in the list. */
static enum error_code unigram_read_tokens(struct unigram *unigram, const struct step_reading *reading,
                                           const cJSON *object)
{
    const cJSON *vocab = cJSON_GetObjectItemCaseSensitive(object, "vocab"), *pair;
    const int tokens = cJSON_GetArraySize(vocab);
    int32_t id = 0;
    if (!cJSON_IsArray(vocab)) return step_wrong(reading, "vocab: must be a list of names with a score each");
    if (tokens > TOKENS_MOST) return step_refuse(reading, "vocab: more than 16,777,216 tokens");
    unigram->vocabulary = vocabulary_open((int32_t)tokens);
    unigram->score = calloc((size_t)tokens + 1, sizeof *unigram->score);
    if (unigram->vocabulary == NULL || unigram->score == NULL) return step_no_memory(reading);
    cJSON_ArrayForEach(pair, vocab) {
        const enum error_code e = unigram_read_token(unigram, reading, pair, id++);
        if (e) return e;
    }
    return token_trie_open(&unigram->trie, unigram->vocabulary, reading);
}

/* unk_id is null or a place of the list. */
static enum error_code unigram_read_unknown(struct unigram *unigram, const struct step_reading *reading,
                                            const cJSON *object)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(object, "unk_id");
    int64_t unknown = -1;
    const int32_t tokens = vocabulary_room(unigram->vocabulary);
    if (id && !cJSON_IsNull(id) && (!json_whole(id, &unknown) || unknown < 0 || unknown >= tokens))
        return step_wrong(reading, "unk_id: must be the place of a token in vocab");
    unigram->unknown = (int32_t)unknown;
    return OK;
}

static enum error_code unigram_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    bool bytes = false;
    enum error_code e = step_state(state, sizeof(struct unigram), reading);
    struct unigram *unigram = *state;
    if (!e) e = step_keys(reading, object, "vocab unk_id byte_fallback");
    if (!e) e = step_flag(reading, object, "byte_fallback", false, &bytes);
    if (!e) unigram->unknown_score = INFINITY;
    if (!e) e = unigram_read_tokens(unigram, reading, object);
    if (!e) e = unigram_read_unknown(unigram, reading, object);
    for (unsigned byte = 0; !e && byte < 256; byte++) {
        char name[8];
        const int n = snprintf(name, sizeof name, "<0x%02X>", byte);
        unigram->of_byte[byte] = bytes ? vocabulary_find(unigram->vocabulary, name, (size_t)n) : -1;
    }
    return e;
}

/* ---- a word ------------------------------------------------------------------------------------------------------ */

static enum error_code unigram_room(struct unigram *unigram, size_t bytes, struct error *err)
{
    if (bytes > WORD_MOST) return fail(err, ERR_FORMAT, "Unigram: a word of more than %zu bytes", WORD_MOST);
    if (bytes < unigram->room) return OK;
    struct best *more = realloc(unigram->best, 2 * (bytes + 1) * sizeof *more);
    if (more == NULL) return fail(err, ERR_MEMORY, "no memory for a word of %zu bytes", bytes);
    unigram->best = more, unigram->room = 2 * (bytes + 1);
    return OK;
}

/* A token from `at` may be the better last one of the way to its end. */
static void unigram_try(struct best *best, size_t at, size_t bytes, double score, int32_t id)
{
    const double sum = score + best[at].score;
    struct best *const end = &best[at + bytes];
    if (end->from == NOWHERE || sum > end->score) *end = (struct best){ sum, (int32_t)at, id };
}

/* The best way to each end of a token.  @return whether each character has a token. */
static bool unigram_forward(struct unigram *unigram, const char *word, size_t bytes)
{
    struct best *const best = unigram->best;
    const struct token_trie *const trie = &unigram->trie;
    best[0] = (struct best){ 0, NOWHERE, -1 };
    for (size_t i = 1; i <= bytes; i++) best[i].from = NOWHERE;
    for (size_t at = 0, n; at < bytes; at += n) {
        int32_t node = 0;
        bool alone = false;
        for (n = 1; at + n < bytes && ((uint8_t)word[at + n] & 0xC0) == 0x80; n++) { }
        for (size_t i = at; i < bytes && (node = token_trie_step(trie, node, word[i])) >= 0; i++) {
            const int32_t id = trie->id[node];
            if (id < 0) continue;
            unigram_try(best, at, i + 1 - at, unigram->score[id], id);
            alone = alone || i + 1 - at == n;
        }
        if (alone) continue;
        unigram_try(best, at, n, unigram->unknown_score, unigram->unknown);
        /* The library asks for the unknown token where it is the best way, not where it is used. */
        if (best[at + n].id < 0) return false;
    }
    return true;
}

/* Characters that are unknown: together a token, or bytes, or the unknown token. */
static bool unigram_unknown(const struct unigram *unigram, const char *text, size_t bytes, struct token_ids *to)
{
    const int32_t whole = vocabulary_find(unigram->vocabulary, text, bytes);
    bool all = whole < 0, ok = true;
    for (size_t i = 0; i < bytes && all; i++) all = unigram->of_byte[(uint8_t)text[i]] >= 0;
    if (!all) return token_ids_add(to, whole >= 0 ? whole : unigram->unknown);
    for (size_t i = 0; i < bytes && ok; i++) ok = token_ids_add(to, unigram->of_byte[(uint8_t)text[i]]);
    return ok;
}

/* The way is known from its end: turn its links, then walk from the beginning. */
static bool unigram_add(const struct unigram *unigram, const char *word, size_t bytes, struct token_ids *to)
{
    struct best *const best = unigram->best;
    bool ok = true;
    size_t next = bytes;
    for (size_t at = bytes; at > 0; at = next) {
        next = (size_t)best[at].from;
        best[next].score = (double)at;          /* the sum is no longer needed; places are exact in fp64 */
    }
    for (size_t at = 0, end; ok && at < bytes; at = end) {
        end = (size_t)best[at].score;
        const int32_t id = best[end].id;
        if (id != unigram->unknown) { ok = token_ids_add(to, id); continue; }
        while (end < bytes && best[(size_t)best[end].score].id == unigram->unknown) end = (size_t)best[end].score;
        ok = unigram_unknown(unigram, word + at, end - at, to);
    }
    return ok;
}

static enum error_code unigram_apply(void *state, const char *word, size_t bytes, struct token_ids *to,
                                     struct error *err)
{
    struct unigram *unigram = state;
    const enum error_code e = unigram_room(unigram, bytes, err);
    if (e) return e;
    if (!unigram_forward(unigram, word, bytes))
        return fail(err, ERR_FORMAT, "unk_id is no token of the model, and the text needs it");
    if (!unigram_add(unigram, word, bytes, to))
        return fail(err, ERR_MEMORY, "no memory for %lld tokens", (long long)to->count);
    return OK;
}

static const struct vocabulary *unigram_vocabulary(const void *state)
{
    return ((const struct unigram *)state)->vocabulary;
}

static void unigram_close(void *state)
{
    struct unigram *unigram = state;
    vocabulary_close(unigram->vocabulary);
    token_trie_close(&unigram->trie);
    free(unigram->score), free(unigram->best);
    free(unigram);
}

const struct model_kind model_unigram = { { "Unigram", unigram_read, unigram_close }, unigram_apply,
                                          unigram_vocabulary };
