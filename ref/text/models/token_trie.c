/* token_trie.c -- builds the tree of a vocabulary's names.  models/unigram.c and models/wordpiece.c call it.  Errors
 * are ERR_FORMAT and ERR_MEMORY. */
#include "ref/text/models/token_trie.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name that the tree will have. */
struct trie_name { const char *text; size_t bytes; int32_t id; };

/* Names in order, and which of them begin as a node does: [from[n], to[n]), which have depth[n] bytes in common. */
struct trie_building { struct trie_name *name; int32_t names, *from, *to; uint16_t *depth; };

static int trie_name_order(const void *a, const void *b)
{
    const struct trie_name *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* All names but an empty one.  @param[out] bytes  of all of them. */
static enum error_code trie_collect(struct trie_building *building, const struct vocabulary *vocabulary, size_t *bytes,
                                    const struct step_reading *reading)
{
    char what[120];
    building->name = malloc(((size_t)vocabulary_count(vocabulary) + 1) * sizeof *building->name);
    if (building->name == NULL) return step_no_memory(reading);
    *bytes = 0;
    for (int32_t id = 0; id < vocabulary_room(vocabulary); id++) {
        struct trie_name name = { .id = id };
        name.text = vocabulary_name(vocabulary, id, &name.bytes);
        if (name.text == NULL || name.bytes == 0) continue;
        if (name.bytes > TOKEN_LONGEST) {
            snprintf(what, sizeof what, "vocab: token %d: a name of more than %d bytes", (int)id, TOKEN_LONGEST);
            return step_refuse(reading, what);
        }
        *bytes += name.bytes;
        building->name[building->names++] = name;
    }
    qsort(building->name, (size_t)building->names, sizeof *building->name, trie_name_order);
    return *bytes < TRIE_NODES_MOST ? OK : step_refuse(reading, "vocab: names of more than 16 MB");
}

/* There are no more nodes than bytes of all names, and the root. */
static enum error_code trie_allocate(struct token_trie *trie, struct trie_building *building, size_t bytes,
                                     const struct step_reading *reading)
{
    trie->below = malloc((bytes + 2) * sizeof *trie->below);
    trie->byte = malloc(bytes + 1);
    trie->id = malloc((bytes + 1) * sizeof *trie->id);
    building->from = malloc((bytes + 1) * sizeof *building->from);
    building->to = malloc((bytes + 1) * sizeof *building->to);
    building->depth = malloc((bytes + 1) * sizeof *building->depth);
    const bool ok = trie->below && trie->byte && trie->id && building->from && building->to && building->depth;
    return ok ? OK : step_no_memory(reading);
}

static void trie_add(struct token_trie *trie, struct trie_building *building, int32_t from, int32_t to, uint16_t depth,
                     char byte)
{
    const int32_t n = trie->nodes++;
    trie->id[n] = -1, trie->byte[n] = (uint8_t)byte;
    building->from[n] = from, building->to[n] = to, building->depth[n] = depth;
}

/* The nodes below one node: a node for each next byte of its names. */
static void trie_divide(struct token_trie *trie, struct trie_building *building, int32_t node)
{
    const uint16_t depth = building->depth[node];
    const struct trie_name *const name = building->name;
    int32_t at = building->from[node];
    const int32_t end = building->to[node];
    trie->below[node] = trie->nodes;
    /* The shortest name is the first: the node itself. */
    if (at < end && name[at].bytes == depth) trie->id[node] = name[at++].id;
    while (at < end) {
        const int32_t from = at;
        while (at < end && name[at].text[depth] == name[from].text[depth]) at++;
        trie_add(trie, building, from, at, (uint16_t)(depth + 1), name[from].text[depth]);
    }
}

enum error_code token_trie_open(struct token_trie *trie, const struct vocabulary *vocabulary,
                                const struct step_reading *reading)
{
    struct trie_building building = { 0 };
    size_t bytes = 0;
    *trie = (struct token_trie){ 0 };
    enum error_code e = trie_collect(&building, vocabulary, &bytes, reading);
    if (!e) e = trie_allocate(trie, &building, bytes, reading);
    if (!e) {
        trie_add(trie, &building, 0, building.names, 0, '\0');
        for (int32_t node = 0; node < trie->nodes; node++) trie_divide(trie, &building, node);
        trie->below[trie->nodes] = trie->nodes;
        for (int byte = 0; byte < 256; byte++) trie->first[byte] = -1;
        for (int32_t n = trie->below[0]; n < trie->below[1]; n++) trie->first[trie->byte[n]] = n;
    }
    free(building.name), free(building.from), free(building.to), free(building.depth);
    return e;
}

void token_trie_close(struct token_trie *token_trie)
{
    free(token_trie->below), free(token_trie->byte), free(token_trie->id);
    *token_trie = (struct token_trie){ 0 };
}

int32_t token_trie_walk(const struct token_trie *token_trie, const char *text, size_t bytes)
{
    int32_t node = 0;
    for (size_t i = 0; i < bytes && node >= 0; i++) node = token_trie_step(token_trie, node, text[i]);
    return node;
}
