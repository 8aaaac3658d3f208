/* limits.h -- "truncation" and "padding" at the top of a tokenizer.json: how many tokens a text may and must have.
 *
 * tokenizer.c calls this file, if it was asked to obey them (tokenizer_obey_limits).
 */
#ifndef ORRERY_TEXT_LIMITS_H
#define ORRERY_TEXT_LIMITS_H

#include "ref/text/step.h"
#include "ref/text/token_ids.h"

struct text_limits {
    bool truncates, pads;               /* the file has a truncation; a padding */
    bool cut_left, pad_left;            /* tokens are cut, or put, at the beginning; else at the end */
    bool second_only;                   /* only the second text of a pair may be cut, so a single one must be short */
    int64_t most;                       /* tokens of a text, with special tokens */
    int64_t stride;                     /* tokens that a cut text and the rest of it share; the rest is dropped here */
    int64_t least;                      /* padding is up to so many tokens; -1: as many as the text has */
    int64_t multiple;                   /* ... and to a multiple of this; 0: of nothing */
    int32_t pad;                        /* the token for padding */
};

/** Read both keys.  @param added  how many special tokens processors add.  @return as the readers of step.h. */
enum error_code text_limits_read(struct text_limits *, struct step_reading *, const cJSON *root, int64_t added);

/** Cut the tokens of a text, before processors.  @param added  what processors will add.
 *  @return OK; ERR_FORMAT if a text is too long that the file does not let cut. */
enum error_code text_limits_cut(const struct text_limits *, struct token_ids *, int64_t added, struct error *);

/** Pad the tokens of a text, after processors.  @return whether there was memory. */
bool text_limits_pad(const struct text_limits *, struct token_ids *);

#endif
