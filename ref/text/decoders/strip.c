/* strip.c -- the decoder Strip: removes a character from the beginning and the end of each text, at most so often.
 *
 * kinds.def lists it.  Where both ends would remove the same character, the library ends with a panic; here the text is
 * empty then.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/decoders/decoder.h"
#include "ref/text/utf8.h"
#include <string.h>

struct strip { char content[UTF8_MOST + 1]; int64_t start, stop; };

static enum error_code strip_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const char *content;
    uint32_t c;
    enum error_code e = step_state(state, sizeof(struct strip), reading);
    struct strip *strip = *state;
    if (!e) e = step_keys(reading, object, "content start stop");
    if (!e) e = step_text(reading, object, "content", NULL, &content);
    if (!e) e = step_count(reading, object, "start", INT32_MAX, -1, &strip->start);
    if (!e) e = step_count(reading, object, "stop", INT32_MAX, -1, &strip->stop);
    if (e) return e;
    if (*content == '\0' || utf8_first(content, strlen(content), &c) != (int)strlen(content))
        return step_wrong(reading, "content: must be one character");
    strcpy(strip->content, content);
    return OK;
}

static enum error_code strip_apply(void *state, const struct token_texts *in, struct token_texts *out,
                                   struct error *err)
{
    const struct strip *strip = state;
    const size_t n = strlen(strip->content);
    enum error_code e = OK;
    for (int64_t i = 0; !e && i < in->count; i++) {
        size_t bytes;
        const char *text = token_texts_at(in, i, &bytes);
        for (int64_t k = 0; k < strip->start && bytes >= n && memcmp(text, strip->content, n) == 0; k++)
            text += n, bytes -= n;
        for (int64_t k = 0; k < strip->stop && bytes >= n && memcmp(text + bytes - n, strip->content, n) == 0; k++)
            bytes -= n;
        e = token_texts_add(out, text, bytes, err);
    }
    return e;
}

const struct decoder_kind decoder_strip = { { "Strip", strip_read, NULL }, strip_apply };
