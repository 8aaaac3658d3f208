/* normalizer.h -- steps that change a whole text before it is split.
 *
 * Each works on the text that the one before it made.  tokenizer.c calls them, for texts and for added tokens with
 * `normalized`; an empty text never comes to `apply`.
 */
#ifndef ORRERY_NORMALIZER_H
#define ORRERY_NORMALIZER_H

#include "ref/text/step.h"
#include "ref/text/text_buffer.h"

/* A kind of normalizer: a file of this folder, and a line in kinds.def. */
struct normalizer_kind {
    struct step_kind step;              /* its name, read and close */
    /** Add the normalized text to `out`, which is empty.  @return OK; ERR_MEMORY; ERR_FORMAT if an expression takes too
     *  many steps. */
    enum error_code (*apply)(void *state, const char *text, size_t bytes, struct text_buffer *out, struct error *);
    /** How many bytes of the result stand for the first `first` bytes of the text, as struct piece counts them.
     *  NULL: what `apply` makes of these bytes alone.  @return as `apply`. */
    enum error_code (*first)(void *state, const char *text, size_t bytes, size_t *first, struct error *);
};

#define NORMALIZER(symbol) extern const struct normalizer_kind normalizer_##symbol;
#include "ref/text/kinds.def"

extern const struct step_room normalizer_room;

/** Apply all normalizers.
 *  @param[in,out] text   the text, and then the result.
 *  @param spare          room for texts between.
 *  @param[in,out] first  how many bytes of the text stand for the first character: `first` of struct piece.
 *  @return as `apply`. */
enum error_code normalizers_apply(const struct steps *, struct text_buffer *text, struct text_buffer *spare,
                                  size_t *first, struct error *);

#endif
