/* bpe.h -- byte-pair encoding: a word as tokens.
 *
 * Source   R. Sennrich, B. Haddow, A. Birch, "Neural machine translation of rare words with subword units",
 *          arXiv:1508.07909; on bytes: A. Radford et al., "Language models are unsupervised multitask learners", 2019.
 * Method   A word is its characters.  Of all neighbours that the list of merges has, those merge that stand first in
 *          the list, from left to right; until there are none.
 *
 * bpe_read.c, which reads the model BPE of a file, calls this file.
 */
#ifndef ORRERY_BPE_H
#define ORRERY_BPE_H

#include "ref/text/token_ids.h"
#include "ref/text/vocabulary.h"

struct bpe;

/* How words become characters, and what characters become that have no token. */
struct bpe_rule {
    const char *prefix, *suffix;        /* before the name of a character that is not the first; after the last one's */
    bool byte_fallback;                 /* a character without a token is its bytes, <0xE2> ... */
    bool whole_first;                   /* a word that is a token is not merged */
    bool fuse_unknown;                  /* characters without a token, with none of another between them, are one */
    const char *unknown;                /* the name of the token of what has none; NULL: it is left out */
};

/** @param vocabulary  the bpe's from now on.  @param rule  its texts stay the caller's, and must stay as long as the
 *  bpe.  @return NULL if there is no memory. */
struct bpe *bpe_open(struct vocabulary *vocabulary, struct bpe_rule rule);
void bpe_close(struct bpe *);

/** The next merge of the list: neighbours left and right become one.
 *  @return OK; ERR_FORMAT naming the token that is missing; ERR_MEMORY. */
enum error_code bpe_merge(struct bpe *, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
                          struct error *);

/** Add the tokens of a word, valid UTF-8.  It remembers words, so not for several threads.
 *  @return OK; ERR_FORMAT if a character needs the unknown token, which is no token; ERR_MEMORY. */
enum error_code bpe_word(struct bpe *, const char *word, size_t bytes, struct token_ids *, struct error *);

const struct vocabulary *bpe_vocabulary(const struct bpe *);

#endif
