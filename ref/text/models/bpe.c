/* bpe.c -- merges the characters of a word into tokens, and remembers words.
 *
 * bpe_read.c calls this file.  Errors are ERR_FORMAT and ERR_MEMORY.
 */
#include "ref/text/models/bpe.h"
#include "ref/text/hash.h"
#include "ref/text/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META_SPACE "\xE2\x96\x81"      /* U+2581, sentencepiece's blank */

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* Neighbours that merge.  Ranks begin with 1; 0 is where the table is empty. */
struct merge { int32_t left, right, rank, made; };

/* A word that was encoded: its tokens are [at, at + count) of the store of ids.  An entry has 16 bytes, because the
 * table is looked up once for each word and must stay in the caches of a core.  bytes 0: the entry is empty. */
struct known { uint32_t hash, word, at; uint16_t bytes, count; };

/* Characters below 2^11, which have one or two bytes, have a table of their tokens. */
enum { CACHED_WORDS = 1 << 16, CACHED_LONGEST = 64, CACHED_SLOTS = 1 << 17, SMALL_CHARACTERS = 1 << 11 };

enum { NO_TOKEN = -1 };

struct bpe {
    struct vocabulary *vocabulary;              /* names of tokens */
    struct bpe_rule rule;
    bool cuts;                                  /* a word may be cut before META_SPACE: bpe_can_cut */
    int32_t unknown;                            /* the token of what has none, or NO_TOKEN */
    int32_t of_byte[256];                       /* <0xNN>, or NO_TOKEN */
    int32_t of_small[SMALL_CHARACTERS];         /* the token of a character, or NO_TOKEN */
    int32_t merges;                             /* how many */
    struct merge *merge;                        /* [merge_slots] */
    uint32_t merge_slots;                       /* a power of two */
    struct known *known;                        /* [CACHED_SLOTS] */
    int words;
    char *words_store;                          /* [CACHED_WORDS * CACHED_LONGEST] */
    size_t words_stored;
    struct token_ids words_ids;
    struct text_buffer name;                    /* of a character with prefix or suffix; of a merge */
    struct symbol *symbol;                      /* of the word at hand */
    int32_t symbols;                            /* entries of `symbol` */
    struct candidate *heap;
    size_t symbols_room, heap_room;
};

/* A pair of ids is one 64-bit number, whose product with an odd constant is a hash. */
static uint32_t hash_pair(int32_t left, int32_t right)
{
    const uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h ^ h >> 29);
}

/* The end of the characters before the next META_SPACE that follows another character. */
static size_t before_space(const char *text, size_t bytes)
{
    const size_t n = strlen(META_SPACE);
    size_t at = 0;
    while (bytes - at >= n && memcmp(text + at, META_SPACE, n) == 0) at += n;
    while (at < bytes && (bytes - at < n || memcmp(text + at, META_SPACE, n) != 0)) at++;
    return at;
}

/* A word may be cut before META_SPACE if that is a token and no token has one after another character: then no merge
 * crosses the cut.  Nor may parts be looked up where the rule looks up whole words.  Words of sentencepiece's models
 * can be whole texts, whose parts are then remembered. */
static bool bpe_can_cut(const struct bpe *bpe)
{
    size_t bytes;
    if (*bpe->rule.prefix || *bpe->rule.suffix || bpe->rule.whole_first) return false;
    if (vocabulary_find(bpe->vocabulary, META_SPACE, strlen(META_SPACE)) < 0) return false;
    for (int32_t id = 0; id < vocabulary_room(bpe->vocabulary); id++) {
        const char *name = vocabulary_name(bpe->vocabulary, id, &bytes);
        if (name != NULL && before_space(name, bytes) < bytes) return false;
    }
    return true;
}

static void bpe_find_small(struct bpe *bpe)
{
    char name[8];
    for (int byte = 0; byte < 256; byte++) {
        const int n = snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        bpe->of_byte[byte] = vocabulary_find(bpe->vocabulary, name, (size_t)n);
    }
    for (uint32_t c = 0; c < SMALL_CHARACTERS; c++)
        bpe->of_small[c] = vocabulary_find(bpe->vocabulary, name, (size_t)utf8_put(name, c));
}

/* The table of merges grows with them. */
struct bpe *bpe_open(struct vocabulary *vocabulary, struct bpe_rule rule)
{
    struct bpe *b = calloc(1, sizeof *b);
    if (b == NULL) return vocabulary_close(vocabulary), NULL;
    b->vocabulary = vocabulary, b->rule = rule;
    b->merge_slots = 64;
    b->merge = calloc(b->merge_slots, sizeof *b->merge);
    b->known = calloc(CACHED_SLOTS, sizeof *b->known);
    b->words_store = malloc((size_t)CACHED_WORDS * CACHED_LONGEST);
    if (!b->merge || !b->known || !b->words_store) return bpe_close(b), NULL;
    b->unknown = rule.unknown ? vocabulary_find(vocabulary, rule.unknown, strlen(rule.unknown)) : NO_TOKEN;
    bpe_find_small(b);
    b->cuts = bpe_can_cut(b);
    return b;
}

void bpe_close(struct bpe *bpe)
{
    if (bpe == NULL) return;
    vocabulary_close(bpe->vocabulary);
    free(bpe->merge), free(bpe->known), free(bpe->words_store), free(bpe->symbol), free(bpe->heap);
    text_buffer_free(&bpe->name);
    token_ids_free(&bpe->words_ids);
    free(bpe);
}

const struct vocabulary *bpe_vocabulary(const struct bpe *bpe) { return bpe->vocabulary; }

/* ---- merges ------------------------------------------------------------------------------------------------------ */

static bool is_empty(const struct merge *merge) { return merge->rank == 0; }

static struct merge *merge_of(const struct bpe *bpe, int32_t left, int32_t right)
{
    uint32_t i = hash_pair(left, right) & (bpe->merge_slots - 1);
    while (!is_empty(&bpe->merge[i]) && (bpe->merge[i].left != left || bpe->merge[i].right != right))
        i = (i + 1) & (bpe->merge_slots - 1);
    return &bpe->merge[i];
}

/* Double the table of merges when it is half full. */
static enum error_code more_merges(struct bpe *bpe, struct error *err)
{
    struct merge *old = bpe->merge;
    const uint32_t slots = bpe->merge_slots;
    /* The table is at most half full, so that a search ends soon. */
    if (2 * (uint32_t)bpe->merges < slots) return OK;
    bpe->merge = calloc(2 * (size_t)slots, sizeof *bpe->merge);
    if (bpe->merge == NULL) return bpe->merge = old, fail(err, ERR_MEMORY, "no memory for %d merges", (int)bpe->merges);
    bpe->merge_slots = 2 * slots;
    for (uint32_t i = 0; i < slots; i++)
        if (!is_empty(&old[i])) *merge_of(bpe, old[i].left, old[i].right) = old[i];
    free(old);
    return OK;
}

static enum error_code bpe_missing(const struct bpe *bpe, const char *left, size_t left_bytes, const char *right,
                                   size_t right_bytes, const char *name, size_t bytes, struct error *err)
{
    return fail(err, ERR_FORMAT, "merge %d, %.*s %.*s: there is no token %.*s", (int)bpe->merges, (int)left_bytes, left,
                (int)right_bytes, right, (int)bytes, name);
}

/* Merges get their rank by the order of these calls. */
enum error_code bpe_merge(struct bpe *bpe, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
                          struct error *err)
{
    const int32_t l = vocabulary_find(bpe->vocabulary, left, left_bytes);
    const int32_t r = vocabulary_find(bpe->vocabulary, right, right_bytes);
    const size_t prefix = strlen(bpe->rule.prefix);
    if (l < 0) return bpe_missing(bpe, left, left_bytes, right, right_bytes, left, left_bytes, err);
    if (r < 0) return bpe_missing(bpe, left, left_bytes, right, right_bytes, right, right_bytes, err);
    /* The right one never begins a word, so it has the prefix, which the new name has only once. */
    if (right_bytes < prefix)
        return fail(err, ERR_FORMAT, "merge %d: %.*s is shorter than continuing_subword_prefix", (int)bpe->merges,
                    (int)right_bytes, right);
    bpe->name.bytes = 0;
    enum error_code e = text_buffer_add(&bpe->name, left, left_bytes, err);
    if (!e) e = text_buffer_add(&bpe->name, right + prefix, right_bytes - prefix, err);
    if (!e) e = more_merges(bpe, err);
    if (e) return e;
    const int32_t made = vocabulary_find(bpe->vocabulary, bpe->name.text, bpe->name.bytes);
    if (made < 0)
        return bpe_missing(bpe, left, left_bytes, right, right_bytes, bpe->name.text, bpe->name.bytes, err);
    /* If a pair comes twice, the last one counts. */
    *merge_of(bpe, l, r) = (struct merge){ l, r, ++bpe->merges, made };
    return OK;
}

/* ---- a word ------------------------------------------------------------------------------------------------------ */

/* Symbols of a word, linked; a symbol that merged into the one before it has id -1. */
struct symbol { int32_t id, before, next; };

/* A merge that may be done: rank first, then place. */
struct candidate { int32_t rank, at, made; };

static bool sooner(struct candidate a, struct candidate b) { return a.rank != b.rank ? a.rank < b.rank : a.at < b.at; }

/* The heap never has more entries than three for each symbol. */
static enum error_code room_for(struct bpe *bpe, size_t symbols, struct error *err)
{
    if (symbols > INT32_MAX / 8) return fail(err, ERR_MEMORY, "a word of %zu characters is too long", symbols);
    if (symbols > bpe->symbols_room) {
        struct symbol *more = realloc(bpe->symbol, 2 * symbols * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for a word of %zu characters", symbols);
        bpe->symbol = more, bpe->symbols_room = 2 * symbols;
    }
    if (3 * symbols > bpe->heap_room) {                           /* at first n - 1, then two for each merge */
        struct candidate *more = realloc(bpe->heap, 6 * symbols * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for a word of %zu characters", symbols);
        bpe->heap = more, bpe->heap_room = 6 * symbols;
    }
    return OK;
}

static void add_symbol(struct bpe *bpe, int32_t id)
{
    const int32_t n = bpe->symbols++;
    bpe->symbol[n] = (struct symbol){ id, n - 1, n + 1 };
}

/* The bytes of a character as tokens; false: one of them has none. */
static bool add_bytes(struct bpe *bpe, const char *name, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (bpe->of_byte[(uint8_t)name[i]] < 0) return false;
    for (size_t i = 0; i < bytes; i++) add_symbol(bpe, bpe->of_byte[(uint8_t)name[i]]);
    return true;
}

/* The name of a character in a word with prefix and suffix: of the first, a middle one or the last. */
static enum error_code bpe_name_of(struct bpe *bpe, const char *character, size_t bytes, bool first, bool last,
                                   struct error *err)
{
    bpe->name.bytes = 0;
    enum error_code e = first ? OK : text_buffer_add(&bpe->name, bpe->rule.prefix, strlen(bpe->rule.prefix), err);
    if (!e) e = text_buffer_add(&bpe->name, character, bytes, err);
    return e || !last ? e : text_buffer_add(&bpe->name, bpe->rule.suffix, strlen(bpe->rule.suffix), err);
}

/* Symbols of a word, one for each character.  An unknown one waits, because the next may fuse with it; it comes after
 * bytes that stand between, as the library has it. */
static enum error_code symbols_of(struct bpe *bpe, const char *word, size_t bytes, struct error *err)
{
    const bool named = *bpe->rule.prefix || *bpe->rule.suffix;
    bool waits = false;
    bpe->symbols = 0;
    for (size_t i = 0, k; i < bytes; i += k) {
        uint32_t c = (uint8_t)word[i];
        k = c < 0x80 ? 1 : (size_t)utf8_first(word + i, bytes - i, &c);
        const char *name = word + i;
        size_t name_bytes = k;
        if (named) {
            const enum error_code e = bpe_name_of(bpe, word + i, k, i == 0, i + k == bytes, err);
            if (e) return e;
            name = bpe->name.text, name_bytes = bpe->name.bytes;
        }
        const int32_t id = !named && c < SMALL_CHARACTERS ? bpe->of_small[c]
                                                          : vocabulary_find(bpe->vocabulary, name, name_bytes);
        if (id >= 0) {
            if (waits) add_symbol(bpe, bpe->unknown), waits = false;
            add_symbol(bpe, id);
            continue;
        }
        if (bpe->rule.byte_fallback && add_bytes(bpe, name, name_bytes)) continue;
        if (bpe->rule.unknown == NULL) continue;
        if (bpe->unknown < 0)
            return fail(err, ERR_FORMAT, "unk_token %s is no token of the model, and the text needs it",
                        bpe->rule.unknown);
        if (waits && !bpe->rule.fuse_unknown) add_symbol(bpe, bpe->unknown);
        waits = true;
    }
    if (waits) add_symbol(bpe, bpe->unknown);
    if (bpe->symbols > 0) bpe->symbol[bpe->symbols - 1].next = -1;
    return OK;
}

/* Few symbols: look at all neighbours each time. */
static void merge_few(struct bpe *bpe)
{
    struct symbol *s = bpe->symbol;
    for (;;) {
        const struct merge *best = NULL;
        int32_t at = -1;
        for (int32_t i = 0; s[i].next >= 0; i = s[i].next) {
            /* The pair with the lowest rank, the first of equals, merges first. */
            const struct merge *m = merge_of(bpe, s[i].id, s[s[i].next].id);
            if (!is_empty(m) && (best == NULL || m->rank < best->rank)) best = m, at = i;
        }
        if (best == NULL) return;
        s[at].id = best->made, s[at].next = s[s[at].next].next;
    }
}

/* The heap has the merge with the lowest rank at its root. */
static void push(struct candidate *heap, size_t *n, struct candidate candidate)
{
    size_t i = (*n)++;
    for (; i > 0 && sooner(candidate, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = candidate;
}

/* The last entry takes the root's place and sinks. */
static struct candidate pop(struct candidate *heap, size_t *n)
{
    const struct candidate first = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && sooner(heap[child + 1], heap[child])) child++;
        if (!sooner(heap[child], last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}

/* Put the merge of a symbol and its right neighbour into the heap, if there is one. */
static void consider(struct bpe *bpe, size_t *n, int32_t at)
{
    const struct symbol *s = bpe->symbol;
    if (at < 0 || s[at].next < 0) return;
    const struct merge *m = merge_of(bpe, s[at].id, s[s[at].next].id);
    if (!is_empty(m)) push(bpe->heap, n, (struct candidate){ m->rank, at, m->made });
}

/* Many: what may merge stands in a heap, in which some is out of date. */
static void merge_many(struct bpe *bpe, int32_t symbols)
{
    struct symbol *s = bpe->symbol;
    size_t waiting = 0;
    for (int32_t i = 0; i + 1 < symbols; i++) consider(bpe, &waiting, i);
    while (waiting > 0) {
        const struct candidate c = pop(bpe->heap, &waiting);
        /* Its symbol has merged, or is the last: the entry is out of date. */
        if (s[c.at].id < 0 || s[c.at].next < 0) continue;
        const struct merge *m = merge_of(bpe, s[c.at].id, s[s[c.at].next].id);
        if (is_empty(m) || m->made != c.made) continue;
        /* The right symbol leaves the list; both pairs beside the new symbol may now merge. */
        const int32_t gone = s[c.at].next;
        s[c.at].id = c.made, s[c.at].next = s[gone].next, s[gone].id = -1;
        if (s[gone].next >= 0) s[s[gone].next].before = c.at;
        consider(bpe, &waiting, s[c.at].before);
        consider(bpe, &waiting, c.at);
    }
}

/* A word that is a token as a whole is not merged, if the file says so. */
static enum error_code bpe_encode(struct bpe *bpe, const char *word, size_t bytes, struct token_ids *to,
                                  struct error *err)
{
    const int32_t one = bpe->rule.whole_first ? vocabulary_find(bpe->vocabulary, word, bytes) : NO_TOKEN;
    bool ok = true;
    if (one >= 0) return token_ids_add(to, one) ? OK : fail(err, ERR_MEMORY, "no memory for tokens");
    enum error_code e = room_for(bpe, bytes * (1 + strlen(bpe->rule.prefix)) + strlen(bpe->rule.suffix), err);
    if (!e) e = symbols_of(bpe, word, bytes, err);
    if (e || bpe->symbols == 0) return e;
    /* Looking at all neighbours each time is faster up to about 48 symbols. */
    if (bpe->symbols <= 48) merge_few(bpe);
    else merge_many(bpe, bpe->symbols);
    for (int32_t i = 0; ok && i >= 0; i = bpe->symbol[i].next) ok = token_ids_add(to, bpe->symbol[i].id);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for tokens");
}

/* Without memory for the ids the word is not remembered, which only costs time. */
static void bpe_remember(struct bpe *bpe, struct known *known, uint32_t hash, const char *word, size_t bytes,
                         const struct token_ids *to, int64_t from)
{
    const int64_t at = bpe->words_ids.count, count = to->count - from;
    const int32_t *id = count ? to->id + from : NULL;           /* a word may have no tokens at all */
    if (count > UINT16_MAX || at > UINT32_MAX || !token_ids_append(&bpe->words_ids, id, count)) return;
    *known = (struct known){ hash, (uint32_t)bpe->words_stored, (uint32_t)at, (uint16_t)bytes, (uint16_t)count };
    memcpy(bpe->words_store + bpe->words_stored, word, bytes);
    bpe->words_stored += bytes, bpe->words++;
}

/* Encode a word without cuts, or copy the tokens that the word had before. */
static enum error_code bpe_part(struct bpe *bpe, const char *word, size_t bytes, struct token_ids *to,
                                struct error *err)
{
    const int64_t from = to->count;
    if (bytes == 0) return OK;
    if (bytes > CACHED_LONGEST) return bpe_encode(bpe, word, bytes, to, err);
    if (bpe->words == CACHED_WORDS) {                             /* begin again */
        memset(bpe->known, 0, CACHED_SLOTS * sizeof *bpe->known);
        bpe->words = 0, bpe->words_stored = 0, bpe->words_ids.count = 0;
    }
    const uint32_t hash = hash_text(word, bytes);
    uint32_t i = hash & (CACHED_SLOTS - 1);
    for (; bpe->known[i].bytes; i = (i + 1) & (CACHED_SLOTS - 1)) {
        const struct known *k = &bpe->known[i];
        if (k->hash != hash || k->bytes != bytes || memcmp(bpe->words_store + k->word, word, bytes) != 0) continue;
        /* The word was encoded before: its ids are kept.  Most words have one. */
        const int32_t *id = k->count ? bpe->words_ids.id + k->at : NULL;
        const bool ok = k->count == 1 ? token_ids_add(to, *id) : token_ids_append(to, id, k->count);
        return ok ? OK : fail(err, ERR_MEMORY, "no memory for tokens");
    }
    const enum error_code e = bpe_encode(bpe, word, bytes, to, err);
    if (!e) bpe_remember(bpe, &bpe->known[i], hash, word, bytes, to, from);
    return e;
}

/* An unknown character before a cut is not fused with what follows, which is a token. */
enum error_code bpe_word(struct bpe *bpe, const char *word, size_t bytes, struct token_ids *to, struct error *err)
{
    enum error_code e = OK;
    for (size_t n; !e && bpe->cuts && (n = before_space(word, bytes)) < bytes; word += n, bytes -= n)
        e = bpe_part(bpe, word, n, to, err);
    return e ? e : bpe_part(bpe, word, bytes, to, err);
}
