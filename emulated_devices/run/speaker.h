/* speaker.h -- a model that goes on with a text, on one device.  cli/sample.c calls these functions. */
#ifndef ORRERY_RUN_SPEAKER_H
#define ORRERY_RUN_SPEAKER_H

#include "ref/error.h"
#include "ref/text/token_ids.h"
#include "ref/text/sampling.h"
#include <stdio.h>

/* Values of the flags of `orrery sample`. */
struct speaker_request {
    const char *model, *prompt, *tokenizer, *dtype;     /* tokenizer NULL: the model's own, or that of its training */
    int tokens;                         /* the most to write */
    bool endless;                       /* go on after a token that ends a text */
    struct sampling how;                /* how tokens are drawn */
};

/* A model has written this. */
struct spoken {
    char model[64];                     /* its name */
    struct token_ids ids;               /* of the prompt, then of its continuation */
    int64_t prompt;                     /* tokens of the prompt */
    double seconds;                     /* that writing took */
    char *text;                         /* the continuation; NULL: no memory */
};

/** Open a model, write the prompt, and go on with it, to `out` token by token.  Call spoken_free afterwards, also after
 *  a failure.  @return OK, ERR_USAGE, ERR_FILE, ERR_FORMAT or ERR_MEMORY. */
enum error_code speak(const struct speaker_request *, FILE *out, struct spoken *, struct error *);
void spoken_free(struct spoken *);

#endif
