/* characters.h -- normalizers that look at one character after the other.
 *
 * lowercase.c, nmt.c, strip_accents.c and bert.c include it.
 */
#ifndef ORRERY_CHARACTERS_H
#define ORRERY_CHARACTERS_H

#include "ref/text/text_buffer.h"
#include "ref/text/utf8.h"

/** Add a character.  @return OK or ERR_MEMORY. */
static inline enum error_code text_buffer_put(struct text_buffer *text_buffer, uint32_t c, struct error *err)
{
    const enum error_code e = text_buffer_reserve(text_buffer, UTF8_MOST, err);
    if (!e) text_buffer->bytes += (size_t)utf8_put(text_buffer->text + text_buffer->bytes, c);
    return e;
}

/** Add the text in lower case, as Rust has it.  @return OK or ERR_MEMORY. */
enum error_code characters_lower(const char *text, size_t bytes, struct text_buffer *out, struct error *);

#endif
