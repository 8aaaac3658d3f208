/* tokenizer.h -- the tokenizer of a model, from its own tokenizer.json: texts to tokens and back.
 *
 * Tokens are those of Hugging Face's library `tokenizers` (tests/ref/test_tokenizer.c).  A file is a pipeline of steps,
 * which step.h explains; kinds.def lists those that are read.  Others are refused by name.
 *
 * cli/tokenize.c, run/speaker.c, generate.c and train/data/ call this file.
 */
#ifndef ORRERY_TOKENIZER_H
#define ORRERY_TOKENIZER_H

#include "ref/error.h"
#include "ref/text/token_ids.h"
#include <stddef.h>

struct tokenizer;

/**
 * Read a tokenizer.
 * @param path  a tokenizer.json, or the folder that has it.
 * @return OK; ERR_FILE; ERR_FORMAT naming the part of the file that is wrong or not supported; ERR_MEMORY.
 */
enum error_code tokenizer_open(struct tokenizer **, const char *path, struct error *);
void tokenizer_close(struct tokenizer *);

/**
 * Add the tokens of a text.  Not for several threads with one tokenizer.
 * @param text     bytes; what is no UTF-8 becomes U+FFFD, as in utf8_repair.
 * @param special  with the tokens that the file puts around a text, such as a token of the beginning.
 * @param[in,out] to  tokens are added at its end.
 * @param[out] wrong  how many places were no UTF-8; or NULL.
 * @return OK; ERR_FORMAT if an expression of the file takes too many steps for this text, or the model has no tokens
 *         for it; ERR_MEMORY.
 */
enum error_code tokenizer_encode(struct tokenizer *, const char *text, size_t bytes, bool special, struct token_ids *to,
                                 int64_t *wrong, struct error *);

/**
 * The text of tokens, valid UTF-8.
 * @param special  also the names of special tokens.
 * @param[out] text  for free, with a NUL after it.
 * @return OK; ERR_USAGE naming an id that is no token; ERR_FORMAT if an expression of the file takes too many steps;
 *         ERR_MEMORY.
 */
enum error_code tokenizer_decode(const struct tokenizer *, const int32_t *ids, int64_t count, bool special, char **text,
                                 size_t *bytes, struct error *);

/** The text of tokens to which others may be added: bytes at its end that begin a character stay as they are.
 *  @return as tokenizer_decode. */
enum error_code tokenizer_decode_begun(const struct tokenizer *, const int32_t *ids, int64_t count, bool special,
                                       char **text, size_t *bytes, struct error *);

/** "truncation", "padding", "truncation and padding", as the file has them at its top; NULL: it has neither. */
const char *tokenizer_limits(const struct tokenizer *);

/** Whether tokenizer_encode cuts and pads as the file says, as encode of the library does.  Until this is called texts
 *  stay whole, as in transformers: whoever trains on a text wants all of it. */
void tokenizer_obey_limits(struct tokenizer *, bool obeys);

/** One more than the largest id. */
int32_t tokenizer_vocabulary(const struct tokenizer *);

#endif
