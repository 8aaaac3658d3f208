/* token_trie.h -- the tokens that a text begins with, found byte by byte.
 *
 * The names of a vocabulary are a tree: a node stands for the beginning of some names, and the nodes below it for their
 * next bytes.  A walk from the root along a text passes every token that the text begins with, from the shortest to the
 * longest.  A walk takes no more steps than the longest name has bytes, TOKEN_LONGEST at most; so a model that walks
 * once from each character of a text takes time linear in the text.
 *
 * models/unigram.c and models/wordpiece.c call this file.
 */
#ifndef ORRERY_TOKEN_TRIE_H
#define ORRERY_TOKEN_TRIE_H

#include "ref/text/vocabulary.h"

/* Released vocabularies have names of some hundred bytes at most (runs of blanks). */
enum { TOKEN_LONGEST = 1024 };

/* Nodes of all names together; those of 250,000 names are about two millions. */
enum { TRIE_NODES_MOST = 1 << 24 };

/* Nodes are numbered level by level, so that those below a node follow each other, by their bytes.  With 29,000 names
 * this was twice as fast as a hash table of edges: 33 MB/s of plays.txt, not 18.  It takes 9 bytes for a node. */
struct token_trie {
    int32_t nodes;                      /* with the root, which is 0 */
    int32_t *below;                     /* [nodes + 1] those below node n are [below[n], below[n + 1]) */
    uint8_t *byte;                      /* [nodes] the byte that leads to a node */
    int32_t *id;                        /* [nodes] the token whose name ends here; -1: none */
    int32_t first[256];                 /* the nodes below the root; -1: none */
};

/** Make the tree of all names that are not empty.
 *  @param[out] trie  for token_trie_close, also after an error.
 *  @return OK; ERR_FORMAT if a name has more than TOKEN_LONGEST bytes, or all have too many; ERR_MEMORY. */
enum error_code token_trie_open(struct token_trie *trie, const struct vocabulary *, const struct step_reading *);
void token_trie_close(struct token_trie *);

/** The node after a byte; -1: no name goes on so. */
static inline int32_t token_trie_step(const struct token_trie *token_trie, int32_t node, char byte)
{
    enum { FEW = 8 };                   /* halving takes longer for these */
    const uint8_t b = (uint8_t)byte;
    if (node == 0) return token_trie->first[b];
    int32_t low = token_trie->below[node], high = token_trie->below[node + 1];
    while (high - low > FEW) {
        const int32_t middle = low + (high - low) / 2;
        if (token_trie->byte[middle] <= b) low = middle;
        else high = middle;
    }
    for (; low < high; low++)
        if (token_trie->byte[low] == b) return low;
    return -1;
}

/** The node after a text, from the root; -1: no name begins so. */
int32_t token_trie_walk(const struct token_trie *, const char *text, size_t bytes);

#endif
