/* text_buffer.c -- keeps a text that doubles its room when it is full.  The files that text_buffer.h names call it;
 * errors are ERR_MEMORY, and ERR_FORMAT of a text that grows without end. */
#include "ref/text/text_buffer.h"
#include <stdlib.h>
#include <string.h>

enum { TEXT_BUFFER_FIRST_ROOM = 64 };

enum error_code text_buffer_reserve(struct text_buffer *text_buffer, size_t more, struct error *err)
{
    if (text_buffer->most && text_buffer->bytes + more > text_buffer->most)
        return fail(err, ERR_FORMAT, "steps of the tokenizer make more than %zu bytes of a text", text_buffer->most);
    if (more <= text_buffer->room - text_buffer->bytes) return OK;
    const size_t room = 2 * (text_buffer->bytes + more) + TEXT_BUFFER_FIRST_ROOM;
    char *text = realloc(text_buffer->text, room);
    if (text == NULL) return fail(err, ERR_MEMORY, "no memory for a text of %zu bytes", room);
    text_buffer->text = text, text_buffer->room = room;
    return OK;
}

enum error_code text_buffer_add(struct text_buffer *text_buffer, const char *text, size_t bytes, struct error *err)
{
    const enum error_code e = text_buffer_reserve(text_buffer, bytes, err);
    if (e || bytes == 0) return e;
    memcpy(text_buffer->text + text_buffer->bytes, text, bytes);
    text_buffer->bytes += bytes;
    return OK;
}

enum error_code text_buffer_replaced(struct text_buffer *text_buffer, const char *text, size_t bytes, const char *from,
                                     const char *to, struct error *err)
{
    const size_t from_bytes = strlen(from), to_bytes = strlen(to), before = text_buffer->bytes;
    enum error_code e = OK;
    size_t done = 0;
    for (const char *at = text; !e && from_bytes && bytes;) {
        if ((at = memchr(at, *from, bytes - (size_t)(at - text))) == NULL) break;
        const size_t begin = (size_t)(at - text);
        if (bytes - begin < from_bytes || memcmp(at, from, from_bytes) != 0) { at++; continue; }
        e = text_buffer_add(text_buffer, text + done, begin - done, err);
        if (!e) e = text_buffer_add(text_buffer, to, to_bytes, err);
        done = begin + from_bytes;
        at = text + done;
    }
    if (!e) e = text_buffer_add(text_buffer, text + done, bytes - done, err);
    if (e) text_buffer->bytes = before;
    return e;
}

/* NFKC makes 33 bytes of the three of U+FDFA, and no step of a released file makes more of a byte. */
size_t text_buffer_growth(size_t bytes)
{
    enum { TIMES = 64, ALWAYS = 1 << 20 };
    return TIMES * bytes + ALWAYS;
}

void text_buffer_free(struct text_buffer *text_buffer)
{
    free(text_buffer->text);
    *text_buffer = (struct text_buffer){ 0 };
}
