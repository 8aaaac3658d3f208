/* token_trie.h -- the tokens that a text begins with, found byte by byte.
 *
 * The names of a vocabulary are a tree: a node stands for the beginning of some names, its edges for their next byte.
 * A walk from the root along a text passes every token that the text begins with, from the shortest to the longest.  A
 * walk takes no more steps than the longest name has bytes, TOKEN_LONGEST at most; so a model that walks once from each
 * character of a text takes time linear in the text.
 *
 * models/unigram.c and models/wordpiece.c call this file.
 */
#ifndef ORRERY_TOKEN_TRIE_H
#define ORRERY_TOKEN_TRIE_H

#include "ref/text/vocabulary.h"

/* Released vocabularies have names of some hundred bytes at most (runs of blanks). */
enum { TOKEN_LONGEST = 1024 };

/* Nodes have a number of 24 bits; those of 250,000 names are about two millions. */
enum { TRIE_NODES_MOST = 1 << 24 };

/* An edge of the tree: `from` is a node and a byte.  `to` 0: the slot is empty, as no edge leads to the root. */
struct trie_edge { uint32_t from; int32_t to; };

struct token_trie {
    struct trie_edge *edge;             /* [slots] */
    uint32_t slots;                     /* a power of two, at least twice the number of edges */
    int32_t nodes;                      /* with the root, which is 0 */
    int32_t *id;                        /* [nodes] the token whose name ends here; -1: none */
};

/** Make the tree of all names that are not empty.
 *  @param[out] trie  for token_trie_close, also after an error.
 *  @return OK; ERR_FORMAT if a name has more than TOKEN_LONGEST bytes, or all have too many; ERR_MEMORY. */
enum error_code token_trie_open(struct token_trie *trie, const struct vocabulary *, const struct step_reading *);
void token_trie_close(struct token_trie *);

/** The node after a byte; -1: no name goes on so. */
static inline int32_t token_trie_step(const struct token_trie *token_trie, int32_t node, char byte)
{
    const uint32_t from = (uint32_t)node << 8 | (uint8_t)byte;
    uint32_t i = (from * 0x9E3779B1u >> 7) & (token_trie->slots - 1);
    while (token_trie->edge[i].to != 0 && token_trie->edge[i].from != from) i = (i + 1) & (token_trie->slots - 1);
    return token_trie->edge[i].to ? token_trie->edge[i].to : -1;
}

/** The node after a text, from the root; -1: no name begins so. */
int32_t token_trie_walk(const struct token_trie *, const char *text, size_t bytes);

#endif
