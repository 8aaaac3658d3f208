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
    size_t most;                        /* bytes that it may have; 0: any number */
};

/** Make room for `more` bytes behind the text.  The caller writes them and adds to `bytes`.
 *  @return OK; ERR_MEMORY; ERR_FORMAT if the text would have more than `most` bytes. */
enum error_code text_buffer_reserve(struct text_buffer *, size_t more, struct error *);

/** Add a text.  @return as text_buffer_reserve; an error leaves the buffer as it was. */
enum error_code text_buffer_add(struct text_buffer *, const char *text, size_t bytes, struct error *);

/** Add a text in which each `from`, found from left to right, is `to`.  @return as text_buffer_add. */
enum error_code text_buffer_replaced(struct text_buffer *, const char *text, size_t bytes, const char *from,
                                     const char *to, struct error *);

/** How long a text may become that steps make of one of so many bytes. */
size_t text_buffer_growth(size_t bytes);

void text_buffer_free(struct text_buffer *);

#endif
