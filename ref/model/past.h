/* past.h -- keys and values of the tokens that a model has seen, so that it goes on without computing them again.
 *
 * A token's keys and values depend on it and those before it alone, so they stay as they are when more tokens come.
 * What attention reads is kept, after norms and rotation; of latent attention, too, the keys and values that it reads,
 * not the latents.  Every layer keeps all tokens, also one with a window.  ref/text/generate.c calls these functions.
 */
#ifndef ORRERY_PAST_H
#define ORRERY_PAST_H

#include "ref/model/transformer.h"

struct past {
    struct tensor *kv;                          /* [blocks] of each block [room,2KA]: keys, then values */
    int64_t blocks, room;                       /* room: tokens of which there can be some */
    int64_t count;                              /* tokens that are kept; 0: begin again */
};

/** Whether a model goes on as it would from the beginning, up to so many tokens: not with parallel streams, with
 *  experts that keep only some choices of a sequence, with a mask, or where the turning of positions changes with the
 *  length. */
bool past_serves(const struct transformer *, int64_t tokens);

/** Have memory for so many tokens.  @return OK, or ERR_MEMORY with nothing to close. */
enum error_code past_open(struct past *, const struct transformer *, int64_t tokens, struct error *);
void past_close(struct past *);

/**
 * transformer_forward of n more tokens of one sequence, after those that are kept; then these are kept, too.
 * @param ids  int32 [n], the new ones.
 * @return OK with logits of the new tokens; ERR_USAGE if a token is not in the vocabulary, or there is no room;
 *     ERR_MEMORY.
 */
enum error_code transformer_continue(struct transformer *, struct past *, const int32_t *ids, int64_t n,
                                     struct error *);

#endif
