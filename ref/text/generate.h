/* generate.h -- a model goes on with tokens, one after the other, and text shows them as they come.
 *
 * run/speaker.c and run/sample.c call this file.
 */
#ifndef ORRERY_GENERATE_H
#define ORRERY_GENERATE_H

#include "ref/model/transformer.h"
#include "ref/text/sampling.h"
#include "ref/text/tokenizer.h"
#include <stdio.h>

/**
 * Draw tokens after a prompt.  Each follows from all before it, or, when these are as many as the model has positions,
 * from the last half of them and what has come since.  Keys and values are kept from token to token where past.h can
 * (past_serves); else each token takes a forward pass over all before it.  Probabilities agree within rounding.
 * @param[in,out] ids  the prompt, at least one token; what is drawn is added.
 * @param tokens   how many.
 * @param stop     [stops] tokens after which nothing is drawn.
 * @param stops    how many.
 * @param tell     called with each token when it is drawn; NULL: nobody is.
 * @param context  for tell.
 * @return OK; ERR_USAGE if a token of the prompt is not in the vocabulary; ERR_DIVERGED; ERR_MEMORY.
 */
enum error_code generate(struct transformer *, struct token_ids *ids, int64_t tokens, const struct sampling *,
                         const int32_t *stop, int stops, void (*tell)(void *context, int32_t token), void *context,
                         struct error *);

/* Shows tokens as text: what is no character yet waits for the next token. */
struct text_stream {
    const struct tokenizer *tokenizer;  /* NULL: tokens are bytes, and those above 255 numbers in angle brackets */
    FILE *out;                          /* NULL: nothing is shown */
    const char *indent;                 /* after the end of a line; NULL: nothing */
    struct token_ids ids;               /* the last ones */
    char *text;                         /* and their text, repaired, NUL at its end; owned */
    size_t bytes, whole, shown;         /* of the text; up to which characters are whole; that have been shown */
    size_t before;                      /* of `shown`, when the last token came: what lies between is new */
};

/** Add a token, and show what can be shown.  Control characters other than the ends of lines are shown as `?`.
 *  @return OK; ERR_USAGE if the tokenizer has no such token; ERR_MEMORY. */
enum error_code text_stream_add(struct text_stream *, int32_t token, struct error *);

/** From now on show to a stream: what was added before is not shown. */
void text_stream_show(struct text_stream *, FILE *out);

/** Show also what is no whole character. */
void text_stream_end(struct text_stream *);
void text_stream_free(struct text_stream *);

#endif
