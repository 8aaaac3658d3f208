/* added_tokens.h -- tokens that are found in a text before it is split: "added_tokens" of a file.
 *
 * tokenizer.c calls this file.
 */
#ifndef ORRERY_ADDED_TOKENS_H
#define ORRERY_ADDED_TOKENS_H

#include "ref/text/character_sets.h"
#include "ref/text/splitters/splitter.h"
#include "ref/text/token_ids.h"
#include "ref/text/vocabulary.h"

/* A token that stands in a text as it is. */
struct added_token {
    char *content;                      /* its text in the file */
    char *pattern;                      /* what is looked for: the content, or the normalized content */
    size_t bytes;                       /* length of `pattern` */
    int32_t id;                         /* the token */
    bool special;                       /* the file says so */
    bool hidden;                        /* decoding can leave it out: `pattern` is the content of a special token */
    bool single_word;                   /* it is found only where no letter stands beside it */
    bool left, right;                   /* it takes the white space beside it, too */
    bool normalized;                    /* it is looked for in the normalized text */
};

struct added_tokens {
    struct added_token *token;          /* [count] without and with `normalized`; each by the bytes of `pattern` */
    int count;                          /* entries of `token` */
    int begins[2][257];                 /* [normalized] those that begin with byte b are [begins[b], begins[b + 1]) */
    int *by_id;                         /* [count] places in `token`, by ids */
    struct character_set word;          /* characters of words, for single_word */
};

/**
 * Read "added_tokens".  The library ignores the ids in the file and counts on from the model; a file whose ids are not
 * these is refused.
 * @param names             of the model.
 * @param normalizers       for tokens with `normalized`.
 * @param[in,out] reading   its vocabulary grows.
 * @return as the readers of step.h.  The tokens are the caller's also after an error.
 */
enum error_code added_tokens_read(struct added_tokens *, struct step_reading *reading, const cJSON *root,
                                  const struct vocabulary *names, const struct steps *normalizers);
void added_tokens_close(struct added_tokens *);

/** The added token with an id; NULL: none. */
const struct added_token *added_tokens_by_id(const struct added_tokens *, int32_t id);

/**
 * Find tokens in a piece.
 * @param normalized  those that are looked for in normalized text; else the others.
 * @param between     takes what is between them.
 * @param to          tokens are added at its end, in the order of the text; `between` adds to it, too.
 * @return OK; what `between` returned; ERR_MEMORY.
 */
enum error_code added_tokens_find(const struct added_tokens *, struct piece, bool normalized,
                                  struct piece_taker *between, struct token_ids *to, struct error *);

#endif
