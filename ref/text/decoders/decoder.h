/* decoder.h -- steps that make text of tokens.
 *
 * A decoder takes a list of texts, which are the names of tokens at first, and makes another list.  At the end the
 * texts of the last list are joined.  tokenizer.c calls decoders.
 */
#ifndef ORRERY_DECODER_H
#define ORRERY_DECODER_H

#include "ref/text/step.h"
#include "ref/text/text_buffer.h"

/* A list of texts, one behind the other. */
struct token_texts {
    struct text_buffer text;            /* all of them */
    size_t *end;                        /* [count] where each ends in `text` */
    int64_t count, room;                /* of `end` */
    bool unfinished;                    /* more tokens may come: bytes that begin a character stay as they are */
};

/** Text number i of a list, without a NUL after it. */
const char *token_texts_at(const struct token_texts *, int64_t i, size_t *bytes);

/** Add a text.  @return OK or ERR_MEMORY. */
enum error_code token_texts_add(struct token_texts *, const char *text, size_t bytes, struct error *);

/** End a text whose bytes the caller has added to `text`.  @return OK or ERR_MEMORY. */
enum error_code token_texts_end(struct token_texts *, struct error *);

void token_texts_free(struct token_texts *);

/* A kind of decoder: a file of this folder, and a line in kinds.def. */
struct decoder_kind {
    struct step_kind step;              /* its name, read and close */
    /** Add to `out`, which is empty, what becomes of the texts `in`.
     *  @return OK; ERR_MEMORY; ERR_FORMAT if an expression takes too many steps. */
    enum error_code (*apply)(void *state, const struct token_texts *in, struct token_texts *out, struct error *);
};

#define DECODER(symbol) extern const struct decoder_kind decoder_##symbol;
#include "ref/text/kinds.def"

extern const struct step_room decoder_room;

/** Apply all decoders.  @param[in,out] texts  names of tokens, and then the result.  @return as `apply`. */
enum error_code decoders_apply(const struct steps *, struct token_texts *texts, struct error *);

/** Remove blanks before marks and short forms of English, as transformers' clean_up_tokenization_spaces does.
 *  @param[out] out  the text is added to it.  @return OK or ERR_MEMORY. */
enum error_code token_text_clean_up(const char *text, size_t bytes, struct text_buffer *out, struct error *);

#endif
