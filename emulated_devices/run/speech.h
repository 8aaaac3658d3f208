/* speech.h -- what a model's folder says about text: its tokenizer, and the tokens that end a text.  speaker.c and
 * cli/train/serve.c call these functions. */
#ifndef ORRERY_RUN_SPEECH_H
#define ORRERY_RUN_SPEECH_H

#include "ref/text/tokenizer.h"

struct checkpoint;

enum { SPEECH_STOPS = 16 };             /* tokens that end a text, at most */

/**
 * Open the tokenizer of the command line, of the model's own file, or of the run that has trained the model.
 * @param word   of the command line; NULL: not given.
 * @param dir    the model's folder; empty or NULL: a preset.
 * @param saved  what is in that folder.
 * @param[out] tokenizer  for tokenizer_close; NULL: tokens are bytes.
 * @return OK, or as tokenizer_open.
 */
enum error_code speech_tokenizer(struct tokenizer **tokenizer, const char *word, const char *dir,
                                 const struct checkpoint *saved, struct error *);

/** eos_token_id of a folder's files: a number or a list; anything else ends nothing.
 *  @param dir  as above.  @return how many of `stop`. */
int speech_stops(const char *dir, int32_t stop[SPEECH_STOPS]);

#endif
