/* vocabulary.h -- the names of tokens: ids by name and names by id.
 *
 * Models in models/ have one each; tokenizer.c and added_tokens.c ask it.
 */
#ifndef ORRERY_VOCABULARY_H
#define ORRERY_VOCABULARY_H

#include "ref/text/step.h"

struct vocabulary;

/* Ids are below it.  Tables have a few bytes for each id, and no released model has more than 2^19 tokens. */
enum { TOKENS_MOST = 1 << 24 };

/** @param tokens  numbers that its ids are below.  @return NULL if there is no memory. */
struct vocabulary *vocabulary_open(int32_t tokens);
void vocabulary_close(struct vocabulary *);

/** Name a token.  @param name  copied.  @return OK; ERR_FORMAT if the name or the id is taken; ERR_MEMORY. */
enum error_code vocabulary_add(struct vocabulary *, const char *name, size_t bytes, int32_t id, struct error *);

/** Read { name: id, .. } from the key "vocab" of a model.  @param[out] out  for vocabulary_close; NULL after an error.
 *  @return as the readers of step.h. */
enum error_code vocabulary_read(struct vocabulary **out, const struct step_reading *, const cJSON *object);

/** A token by its name; -1: there is none. */
int32_t vocabulary_find(const struct vocabulary *, const char *name, size_t bytes);

/** The name of a token, without a NUL after it; NULL: no token has this id. */
const char *vocabulary_name(const struct vocabulary *, int32_t id, size_t *bytes);

/** One more than the largest id that it can have, as vocabulary_open was told. */
int32_t vocabulary_room(const struct vocabulary *);

/** How many tokens have names. */
int32_t vocabulary_count(const struct vocabulary *);

#endif
