/* strip.c -- the normalizer Strip: white space at the beginning or the end of a text is removed.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/utf8.h"

struct stripping { bool left, right; };

static enum error_code strip_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct stripping), reading);
    struct stripping *stripping = *state;
    if (!e) e = step_keys(reading, object, "strip_left strip_right");
    if (!e) e = step_flag(reading, object, "strip_left", true, &stripping->left);
    return e ? e : step_flag(reading, object, "strip_right", true, &stripping->right);
}

/* The text from *begin to *end stays; of white space alone nothing does. */
static void strip_bounds(const struct stripping *stripping, const char *text, size_t bytes, size_t *begin, size_t *end)
{
    const struct character_class *white = class_named("s");
    bool before = stripping->left;
    uint32_t c;
    *begin = *end = 0;
    for (size_t at = 0; at < bytes;) {
        const size_t n = (size_t)utf8_first(text + at, bytes - at, &c);
        const bool is_white = class_has(white, c);
        before = before && is_white;
        at += n;
        if (before) *begin = at;
        if (!is_white || !stripping->right) *end = at;
    }
    if (*end < *begin) *end = *begin;
}

static enum error_code strip_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                   struct error *err)
{
    size_t begin, end;
    strip_bounds(state, text, bytes, &begin, &end);
    return text_buffer_add(out, text + begin, end - begin, err);
}

/* White space at the beginning is at the end of these bytes alone, but not of the text. */
static enum error_code strip_first(void *state, const char *text, size_t bytes, size_t *first, struct error *err)
{
    size_t begin, end;
    (void)err;
    strip_bounds(state, text, bytes, &begin, &end);
    if (end > *first) end = *first;
    *first = end > begin ? end - begin : 0;
    return OK;
}

const struct normalizer_kind normalizer_strip = { { "Strip", strip_read, NULL }, strip_apply, strip_first };
