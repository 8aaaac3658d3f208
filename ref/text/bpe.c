/* bpe.c -- merges the characters of a word into tokens, and remembers words.
 *
 * tokenizer.c and tokenizer_read.c call this file.  Errors are ERR_FORMAT and ERR_MEMORY while the tables are built;
 * later a bool says whether there was memory.
 */
#include "ref/text/bpe.h"
#include "ref/text/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- letters of bytes -------------------------------------------------------------------------------------------- */

/* These bytes have a letter of their own in Latin-1. */
static bool printable_byte(int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

uint32_t byte_letter(uint8_t byte)
{
    uint32_t next = 0x100;
    if (printable_byte(byte)) return byte;
    /* Bytes without a printable letter get the code points from 256 on, in their order. */
    for (int b = 0; b < byte; b++) next += !printable_byte(b);
    return next;
}

/* The inverse of byte_letter. */
int letter_byte(uint32_t letter)
{
    uint32_t next = 0x100;
    if (letter < 0x100) return printable_byte((int)letter) ? (int)letter : -1;
    for (int b = 0; b < 0x100; b++)
        if (!printable_byte(b) && next++ == letter) return b;
    return -1;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* A text of the store. */
struct span { size_t at; uint32_t bytes; };

/* Neighbours that merge: 0 0 where the table is empty, which no merge is (a result has an id of its own). */
struct merge { int32_t left, right, rank, made; };

/* A word that was encoded: its tokens are [at, at + count) of the store of ids. */
struct known { struct span word; int64_t at; int32_t count; };

enum { CACHED_WORDS = 1 << 16, CACHED_LONGEST = 64, CACHED_SLOTS = 1 << 17 };

struct bpe {
    struct bpe_rule rule;
    int32_t tokens, merges, of_byte[256];       /* of_byte: its letter, or <0xNN>; -1: none */
    struct span *name;                          /* [tokens]; bytes 0: the id is not used */
    int32_t *by_name;                           /* [slots] ids, or -1 */
    struct merge *merge;                        /* [merge_slots] */
    uint32_t slots, merge_slots;                /* powers of two */
    char *store;                                /* names */
    size_t stored, room;
    struct known *known;                        /* [CACHED_SLOTS] */
    int words;
    char *words_store;                          /* [CACHED_WORDS * CACHED_LONGEST] */
    size_t words_stored;
    struct token_ids words_ids;
    struct symbol *symbol;                      /* of the word at hand */
    struct candidate *heap;
    size_t symbols_room, heap_room;
};

/* The text is hashed 8 bytes at a time; its length is part of the last word. */
static uint32_t hash(const char *text, size_t bytes)
{
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (; bytes >= 8; text += 8, bytes -= 8) {
        uint64_t eight;
        memcpy(&eight, text, 8);
        h = (h ^ eight) * 0xD6E8FEB86659FD93u, h ^= h >> 32;
    }
    uint64_t rest = bytes;
    for (size_t i = 0; i < bytes; i++) rest = rest << 8 | (uint8_t)text[i];
    h = (h ^ rest) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(h ^ h >> 32);
}

/* A pair of ids is one 64-bit number, whose product with an odd constant is a hash. */
static uint32_t hash_pair(int32_t left, int32_t right)
{
    const uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h ^ h >> 29);
}

/* The list doubles when it is full. */
bool token_ids_add(struct token_ids *token_ids, int32_t id)
{
    if (token_ids->count == token_ids->room) {
        const int64_t room = token_ids->room ? 2 * token_ids->room : 256;
        int32_t *more = realloc(token_ids->id, (size_t)room * sizeof *more);
        if (more == NULL) return false;
        token_ids->id = more, token_ids->room = room;
    }
    token_ids->id[token_ids->count++] = id;
    return true;
}

void token_ids_free(struct token_ids *token_ids)
{
    free(token_ids->id);
    *token_ids = (struct token_ids){ 0 };
}

/* Tables have at least twice as many slots as tokens, so that searches are short. */
struct bpe *bpe_open(int32_t tokens)
{
    struct bpe *b = calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    for (b->slots = 64; b->slots < 2 * (uint32_t)tokens; b->slots *= 2) { }
    b->merge_slots = b->slots;
    b->tokens = tokens;
    b->name = calloc((size_t)tokens + 1, sizeof *b->name);
    b->by_name = malloc(b->slots * sizeof *b->by_name);
    b->merge = calloc(b->merge_slots, sizeof *b->merge);
    b->known = calloc(CACHED_SLOTS, sizeof *b->known);
    b->words_store = malloc((size_t)CACHED_WORDS * CACHED_LONGEST);
    if (!b->name || !b->by_name || !b->merge || !b->known || !b->words_store) return bpe_close(b), NULL;
    memset(b->by_name, -1, b->slots * sizeof *b->by_name);
    return b;
}

void bpe_close(struct bpe *bpe)
{
    if (bpe == NULL) return;
    free(bpe->name), free(bpe->by_name), free(bpe->merge), free(bpe->store), free(bpe->known), free(bpe->words_store);
    free(bpe->symbol), free(bpe->heap);
    token_ids_free(&bpe->words_ids);
    free(bpe);
}

/* The slot of a name, or the empty one where it would be. */
static int32_t *slot_of(const struct bpe *bpe, const char *name, size_t bytes)
{
    uint32_t i = hash(name, bytes) & (bpe->slots - 1);
    /* With open addressing the next slot is tried, until the name or an empty one is found. */
    for (; bpe->by_name[i] >= 0; i = (i + 1) & (bpe->slots - 1)) {
        const struct span s = bpe->name[bpe->by_name[i]];
        if (s.bytes == bytes && memcmp(bpe->store + s.at, name, bytes) == 0) break;
    }
    return &bpe->by_name[i];
}

int32_t bpe_find(const struct bpe *bpe, const char *name, size_t bytes) { return *slot_of(bpe, name, bytes); }

const char *bpe_name(const struct bpe *bpe, int32_t id, size_t *bytes)
{
    if (id < 0 || id >= bpe->tokens || bpe->name[id].bytes == 0) return NULL;
    *bytes = bpe->name[id].bytes;
    return bpe->store + bpe->name[id].at;
}

/* A name and an id belong to each other: neither may come twice. */
enum error_code bpe_token(struct bpe *bpe, const char *name, size_t bytes, int32_t id, struct error *err)
{
    int32_t *slot = slot_of(bpe, name, bytes);
    if (bytes == 0) return fail(err, ERR_FORMAT, "token %d has no name", (int)id);
    if (*slot >= 0 || bpe->name[id].bytes)
        return fail(err, ERR_FORMAT, "token %.*s, %d: two tokens have this name, or this number", (int)bytes, name,
                    (int)id);
    if (bpe->stored + bytes > bpe->room) {
        const size_t room = 2 * (bpe->stored + bytes);
        char *more = realloc(bpe->store, room);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for %d tokens", (int)bpe->tokens);
        bpe->store = more, bpe->room = room;
    }
    memcpy(bpe->store + bpe->stored, name, bytes);
    bpe->name[id] = (struct span){ bpe->stored, (uint32_t)bytes };
    bpe->stored += bytes;
    /* The name is in the store, and its hash leads to the id. */
    *slot = id;
    return OK;
}

/* ---- merges ------------------------------------------------------------------------------------------------------ */

static bool is_empty(const struct merge *merge) { return merge->left == 0 && merge->right == 0 && merge->made == 0; }

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

/* Merges get their rank by the order of these calls. */
enum error_code bpe_merge(struct bpe *bpe, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
                          struct error *err)
{
    char both[1024];
    const int32_t l = bpe_find(bpe, left, left_bytes), r = bpe_find(bpe, right, right_bytes);
    const enum error_code e = more_merges(bpe, err);
    if (e) return e;
    if (left_bytes + right_bytes > sizeof both)
        return fail(err, ERR_FORMAT, "merge %d: longer than %zu bytes", (int)bpe->merges, sizeof both);
    memcpy(both, left, left_bytes), memcpy(both + left_bytes, right, right_bytes);
    const int32_t made = bpe_find(bpe, both, left_bytes + right_bytes);
    if (l < 0 || r < 0 || made < 0)
        return fail(err, ERR_FORMAT, "merge %d, %.*s %.*s: there is no token %.*s", (int)bpe->merges, (int)left_bytes,
                    left, (int)right_bytes, right, (int)(l < 0 ? left_bytes : r < 0 ? right_bytes : left_bytes +
                    right_bytes), l < 0 ? left : r < 0 ? right : both);
    /* If a pair comes twice, the last one counts. */
    *merge_of(bpe, l, r) = (struct merge){ l, r, bpe->merges++, made };
    return OK;
}

/* All names are known by now, so each byte gets its token or -1. */
void bpe_set_rule(struct bpe *bpe, struct bpe_rule rule)
{
    bpe->rule = rule;
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        const int n = rule.byte_level ? utf8_put(name, byte_letter((uint8_t)byte))
                                      : snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        bpe->of_byte[byte] = bpe_find(bpe, name, (size_t)n);
    }
}

/* ---- a word ------------------------------------------------------------------------------------------------------ */

/* Symbols of a word, linked; a symbol that merged into the one before it has id -1. */
struct symbol { int32_t id, before, next; };

/* A merge that may be done: rank first, then place. */
struct candidate { int32_t rank, at, made; };

static bool sooner(struct candidate a, struct candidate b) { return a.rank != b.rank ? a.rank < b.rank : a.at < b.at; }

/* The heap never has more entries than three for each symbol. */
static bool room_for(struct bpe *bpe, size_t symbols)
{
    if (symbols > bpe->symbols_room) {
        struct symbol *more = realloc(bpe->symbol, 2 * symbols * sizeof *more);
        if (more == NULL) return false;
        bpe->symbol = more, bpe->symbols_room = 2 * symbols;
    }
    if (3 * symbols > bpe->heap_room) {                           /* at first n - 1, then two for each merge */
        struct candidate *more = realloc(bpe->heap, 6 * symbols * sizeof *more);
        if (more == NULL) return false;
        bpe->heap = more, bpe->heap_room = 6 * symbols;
    }
    return true;
}

/* An id below 0 adds no symbol. */
static int32_t add_symbol(struct bpe *bpe, int32_t n, int32_t id)
{
    if (id < 0) return n;
    bpe->symbol[n] = (struct symbol){ id, n - 1, n + 1 };
    return n + 1;
}

/* A character that has no token. */
static int32_t add_unknown(struct bpe *bpe, int32_t n, const char *character, int bytes, bool *fused)
{
    bool all = bpe->rule.byte_fallback;
    /* Byte fallback needs a token for each byte of the character. */
    for (int i = 0; i < bytes && all; i++) all = bpe->of_byte[(uint8_t)character[i]] >= 0;
    if (all) {
        for (int i = 0; i < bytes; i++) n = add_symbol(bpe, n, bpe->of_byte[(uint8_t)character[i]]);
        *fused = false;
        return n;
    }
    if (!*fused || !bpe->rule.fuse_unknown) n = add_symbol(bpe, n, bpe->rule.unknown);
    *fused = true;
    return n;
}

/* Symbols of a word: one for each byte, or for each character, or for its bytes if the character has no token. */
static int32_t symbols_of(struct bpe *bpe, const char *word, size_t bytes)
{
    int32_t n = 0;
    bool fused = false;                                         /* whether the last one was unknown */
    for (size_t i = 0; i < bytes;) {
        uint32_t c;
        /* Each byte is a symbol, by its letter; a byte without a token is left out. */
        if (bpe->rule.byte_level) {
            n = add_symbol(bpe, n, bpe->of_byte[(uint8_t)word[i++]]);
            continue;
        }
        const int k = utf8_first(word + i, bytes - i, &c);
        const int32_t id = bpe_find(bpe, word + i, (size_t)k);
        if (id >= 0) n = add_symbol(bpe, n, id), fused = false;
        else n = add_unknown(bpe, n, word + i, k, &fused);
        i += (size_t)k;
    }
    if (n > 0) bpe->symbol[n - 1].next = -1;
    return n;
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

/* The name under which a word may itself be a token. */
static int32_t bpe_whole(const struct bpe *bpe, const char *word, size_t bytes)
{
    char letters[2 * CACHED_LONGEST + UTF8_MOST];
    size_t n = 0;
    if (!bpe->rule.byte_level) return bpe_find(bpe, word, bytes);
    if (bytes > CACHED_LONGEST) return -1;
    for (size_t i = 0; i < bytes; i++) n += (size_t)utf8_put(letters + n, byte_letter((uint8_t)word[i]));
    return bpe_find(bpe, letters, n);
}

/* A word that is a token as a whole is not merged, if the file says so. */
static bool bpe_encode(struct bpe *bpe, const char *word, size_t bytes, struct token_ids *to)
{
    const int32_t one = bpe->rule.whole_first ? bpe_whole(bpe, word, bytes) : -1;
    if (one >= 0) return token_ids_add(to, one);
    if (!room_for(bpe, bytes)) return false;
    const int32_t n = symbols_of(bpe, word, bytes);
    if (n == 0) return true;
    /* Looking at all neighbours each time is faster up to about 48 symbols. */
    if (n <= 48) merge_few(bpe);
    else merge_many(bpe, n);
    for (int32_t i = 0; i >= 0; i = bpe->symbol[i].next)
        if (!token_ids_add(to, bpe->symbol[i].id)) return false;
    return true;
}

/* Without memory for the ids the word is not remembered, which only costs time. */
static void bpe_remember(struct bpe *bpe, struct known *known, const char *word, size_t bytes,
                         const struct token_ids *to, int64_t from)
{
    const int64_t at = bpe->words_ids.count;
    for (int64_t i = from; i < to->count; i++)
        if (!token_ids_add(&bpe->words_ids, to->id[i])) { bpe->words_ids.count = at; return; }
    *known = (struct known){ { bpe->words_stored, (uint32_t)bytes }, at, (int32_t)(to->count - from) };
    memcpy(bpe->words_store + bpe->words_stored, word, bytes);
    bpe->words_stored += bytes, bpe->words++;
}

/* Encode a word, or copy the tokens that the word had before. */
bool bpe_word(struct bpe *bpe, const char *word, size_t bytes, struct token_ids *to)
{
    const int64_t from = to->count;
    if (bytes == 0) return true;
    if (bytes > CACHED_LONGEST) return bpe_encode(bpe, word, bytes, to);
    if (bpe->words == CACHED_WORDS) {                             /* begin again */
        memset(bpe->known, 0, CACHED_SLOTS * sizeof *bpe->known);
        bpe->words = 0, bpe->words_stored = 0, bpe->words_ids.count = 0;
    }
    uint32_t i = hash(word, bytes) & (CACHED_SLOTS - 1);
    for (; bpe->known[i].word.bytes; i = (i + 1) & (CACHED_SLOTS - 1)) {
        const struct known k = bpe->known[i];
        if (k.word.bytes != bytes || memcmp(bpe->words_store + k.word.at, word, bytes) != 0) continue;
        /* The word was encoded before: its ids are kept. */
        for (int32_t t = 0; t < k.count; t++)
            if (!token_ids_add(to, bpe->words_ids.id[k.at + t])) return false;
        return true;
    }
    if (!bpe_encode(bpe, word, bytes, to)) return false;
    bpe_remember(bpe, &bpe->known[i], word, bytes, to, from);
    return true;
}
