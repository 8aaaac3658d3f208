/* speaker.h -- a model that goes on with a text, on one device. */
#ifndef ORRERY_RUN_SPEAKER_H
#define ORRERY_RUN_SPEAKER_H

#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "ref/text/generate.h"

enum { STOPS_MOST = 16 };

/* Values of the flags of `orrery sample`. */
struct speaker_request {
    const char *model, *prompt, *tokenizer, *dtype;     /* tokenizer NULL: the model's own, or that of its training */
    int tokens;                         /* the most to write */
    bool endless;                       /* go on after a token that ends a text */
    struct sampling how;                /* how tokens are drawn */
};

/* A model with what is needed to talk to it. */
struct speaker {
    const struct speaker_request *request;      /* the caller's */
    char dir[BUNDLE_PATH];              /* of the model; empty: a preset */
    struct checkpoint saved;            /* in that folder */
    struct transformer model;           /* with its weights */
    struct tokenizer *tokenizer;        /* NULL: tokens are bytes */
    int32_t stop[STOPS_MOST];           /* tokens that end a text */
    int stops;                          /* entries of `stop` */
    struct token_ids ids;               /* of the prompt, then what was written */
    int64_t prompt;                     /* tokens of the prompt */
    double seconds;                     /* that writing took */
    struct text_stream text;            /* to `out` */
    enum error_code failed;             /* of showing */
    struct error error;                 /* likewise */
};

/** Open the model and read the prompt.  Call speaker_close afterwards, also after a failure.
 *  @return OK, ERR_USAGE, ERR_FILE, ERR_FORMAT or ERR_MEMORY. */
enum error_code speaker_open(struct speaker *, const struct speaker_request *, struct error *);

/** Write the prompt, and go on with it, to `out` token by token.  @return OK or ERR_MEMORY. */
enum error_code speaker_speak(struct speaker *, FILE *out, struct error *);

/** The text of the tokens from `first` on, for free(); NULL: no memory. */
char *speaker_text(const struct speaker *, const struct token_ids *, int64_t first);

void speaker_close(struct speaker *);

#endif
