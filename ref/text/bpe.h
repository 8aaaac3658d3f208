/* bpe.h -- byte-pair encoding: a word as tokens.
 *
 * Source   R. Sennrich, B. Haddow, A. Birch, "Neural machine translation of rare words with subword units",
 *          arXiv:1508.07909; on bytes: A. Radford et al., "Language models are unsupervised multitask learners", 2019.
 * Method   A word is its characters.  Of all neighbours that the list of merges has, those merge that stand first in
 *          the list, from left to right; until there are none.
 *
 * tokenizer.c and tokenizer_read.c use this file; the corpus and files of tokens use its list of ids.
 */
#ifndef ORRERY_BPE_H
#define ORRERY_BPE_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tokens, at the end of which others can be added. */
struct token_ids { int32_t *id; int64_t count, room; };

/** Add a token.  @return whether there was memory. */
bool token_ids_add(struct token_ids *, int32_t id);
void token_ids_free(struct token_ids *);

struct bpe;

/* How words become characters, and what characters become that have no token. */
struct bpe_rule {
    bool byte_level;                    /* characters stand for bytes: byte_letter */
    bool byte_fallback;                 /* a character without a token is its bytes, <0xE2> ... */
    bool whole_first;                   /* a word that is a token is not merged */
    bool fuse_unknown;                  /* neighbours without a token are one unknown */
    int32_t unknown;                    /* the token of what has none; -1: it is left out */
};

/** @param tokens  numbers that its ids are below.  @return NULL if there is no memory. */
struct bpe *bpe_open(int32_t tokens);
void bpe_close(struct bpe *);

/** Name a token.  @param name  copied.  @return OK; ERR_FORMAT if the name or the id is taken; ERR_MEMORY. */
enum error_code bpe_token(struct bpe *, const char *name, size_t bytes, int32_t id, struct error *);

/** The next merge of the list: neighbours left and right become one.  All tokens have names by then.
 *  @return OK; ERR_FORMAT naming the token that is missing; ERR_MEMORY. */
enum error_code bpe_merge(struct bpe *, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
                          struct error *);

/** All is there; from now on words can be encoded. */
void bpe_set_rule(struct bpe *, struct bpe_rule);

/** Add the tokens of a word, valid UTF-8.  It remembers words, so not for several threads.
 *  @return whether there was memory. */
bool bpe_word(struct bpe *, const char *word, size_t bytes, struct token_ids *);

/** A token by its name; -1: there is none. */
int32_t bpe_find(const struct bpe *, const char *name, size_t bytes);

/** The name of a token; NULL: no token has this id. */
const char *bpe_name(const struct bpe *, int32_t id, size_t *bytes);

/** The letter that stands for a byte in names of tokens, as GPT-2 has it: printable ones for themselves, the others
 *  for U+0100 and so on. */
uint32_t byte_letter(uint8_t byte);

/** The byte that a letter stands for; -1: none. */
int letter_byte(uint32_t letter);

#endif
