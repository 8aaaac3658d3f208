/* token_trie.c -- builds the tree of a vocabulary's names.  models/unigram.c and models/wordpiece.c call it.  Errors
 * are ERR_FORMAT and ERR_MEMORY. */
#include "ref/text/models/token_trie.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Follow an edge, and make it if there is none. */
static int32_t trie_grow(struct token_trie *trie, int32_t node, char byte)
{
    const uint32_t from = (uint32_t)node << 8 | (uint8_t)byte;
    uint32_t i = (from * 0x9E3779B1u >> 7) & (trie->slots - 1);
    while (trie->edge[i].to != 0 && trie->edge[i].from != from) i = (i + 1) & (trie->slots - 1);
    if (trie->edge[i].to == 0) {
        trie->id[trie->nodes] = -1;
        trie->edge[i] = (struct trie_edge){ from, trie->nodes++ };
    }
    return trie->edge[i].to;
}

/* No node more than bytes of all names, and the root. */
static enum error_code trie_allocate(struct token_trie *trie, const struct vocabulary *vocabulary,
                                     const struct step_reading *reading)
{
    char what[120];
    size_t bytes, all = 1;
    for (int32_t id = 0; id < vocabulary_room(vocabulary); id++) {
        if (vocabulary_name(vocabulary, id, &bytes) == NULL) continue;
        if (bytes > TOKEN_LONGEST) {
            snprintf(what, sizeof what, "vocab: token %d: a name of more than %d bytes", (int)id, TOKEN_LONGEST);
            return step_refuse(reading, what);
        }
        all += bytes;
    }
    if (all > TRIE_NODES_MOST) return step_refuse(reading, "vocab: names of more than 16 MB");
    for (trie->slots = 64; trie->slots < 2 * all; trie->slots *= 2) { }
    trie->edge = calloc(trie->slots, sizeof *trie->edge);
    trie->id = malloc(all * sizeof *trie->id);
    return trie->edge && trie->id ? OK : step_no_memory(reading);
}

enum error_code token_trie_open(struct token_trie *trie, const struct vocabulary *vocabulary,
                                const struct step_reading *reading)
{
    *trie = (struct token_trie){ .nodes = 1 };
    const enum error_code e = trie_allocate(trie, vocabulary, reading);
    if (e) return e;
    trie->id[0] = -1;
    for (int32_t id = 0; id < vocabulary_room(vocabulary); id++) {
        size_t bytes;
        const char *name = vocabulary_name(vocabulary, id, &bytes);
        int32_t node = 0;
        for (size_t i = 0; name && i < bytes; i++) node = trie_grow(trie, node, name[i]);
        if (node > 0) trie->id[node] = id;
    }
    return OK;
}

void token_trie_close(struct token_trie *token_trie)
{
    free(token_trie->edge), free(token_trie->id);
    *token_trie = (struct token_trie){ 0 };
}

int32_t token_trie_walk(const struct token_trie *token_trie, const char *text, size_t bytes)
{
    int32_t node = 0;
    for (size_t i = 0; i < bytes && node >= 0; i++) node = token_trie_step(token_trie, node, text[i]);
    return node;
}
