/* token_ids.h -- a list of tokens that grows at its end.
 *
 * tokenizer.c, models/, processors/, corpus.c, generate.c and cli/tokenize.c use this list.
 */
#ifndef ORRERY_TOKEN_IDS_H
#define ORRERY_TOKEN_IDS_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens, at the end of which others can be added. */
struct token_ids { int32_t *id; int64_t count, room; };

/** Add a token.  @return whether there was memory. */
bool token_ids_add(struct token_ids *, int32_t id);

/** Add `count` tokens.  @return whether there was memory. */
bool token_ids_append(struct token_ids *, const int32_t *id, int64_t count);

void token_ids_free(struct token_ids *);

#endif
