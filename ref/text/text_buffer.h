/* text_buffer.h -- a text that grows at its end.
 *
 * The steps in normalizers/, splitters/ and decoders/ write their results into buffers.  A buffer that is all zeros is
 * empty.  A step keeps its buffer and empties it by `bytes = 0`, so that it allocates once, not for each piece.
 */
#ifndef ORRERY_TEXT_BUFFER_H
#define ORRERY_TEXT_BUFFER_H

#include "ref/error.h"
#include <stddef.h>

/* A text of `bytes` bytes, which may have bytes 0. */
struct text_buffer {
    char *text;                         /* NULL until something was added */
    size_t bytes, room;                 /* used; allocated */
};

/** Make room for `more` bytes behind the text.  The caller writes them and adds to `bytes`.  @return OK, ERR_MEMORY. */
enum error_code text_buffer_reserve(struct text_buffer *, size_t more, struct error *);

/** Add a text.  @return OK or ERR_MEMORY, which leaves the buffer as it was. */
enum error_code text_buffer_add(struct text_buffer *, const char *text, size_t bytes, struct error *);

/** Add a text in which each `from`, found from left to right, is `to`.  @return as text_buffer_add. */
enum error_code text_buffer_replaced(struct text_buffer *, const char *text, size_t bytes, const char *from,
                                     const char *to, struct error *);

void text_buffer_free(struct text_buffer *);

#endif
