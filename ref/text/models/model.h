/* model.h -- the step that makes tokens of a word.
 *
 * A file has one model.  Words are the pieces that come out of the splitters.  tokenizer.c calls the model and asks its
 * vocabulary for names.
 */
#ifndef ORRERY_TOKEN_MODEL_H
#define ORRERY_TOKEN_MODEL_H

#include "ref/text/token_ids.h"
#include "ref/text/vocabulary.h"

/* A kind of model: a file of this folder, and a line in kinds.def. */
struct model_kind {
    struct step_kind step;              /* its name, read and close */
    /** Add the tokens of a word, which is not empty and valid UTF-8.  The state may remember words.
     *  @return OK; ERR_FORMAT if the word has no tokens, as without an unknown token; ERR_MEMORY. */
    enum error_code (*apply)(void *state, const char *word, size_t bytes, struct token_ids *, struct error *);
    /** The names of its tokens. */
    const struct vocabulary *(*vocabulary)(const void *state);
};

#define MODEL(symbol) extern const struct model_kind model_##symbol;
#include "ref/text/kinds.def"

/** Read the model of a file; without a type it is BPE.  @return as the readers of step.h; *model is the caller's also
 *  after an error. */
enum error_code model_read(struct step *model, struct step_reading *, const cJSON *root);

#endif
