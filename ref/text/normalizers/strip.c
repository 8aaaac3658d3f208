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

static enum error_code strip_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                   struct error *err)
{
    const struct stripping *stripping = state;
    const struct character_class *white = class_named("s");
    size_t begin = 0, end = 0;
    bool before = stripping->left;
    uint32_t c;
    for (size_t at = 0; at < bytes;) {
        const size_t n = (size_t)utf8_first(text + at, bytes - at, &c);
        const bool is_white = class_has(white, c);
        before = before && is_white;
        at += n;
        if (before) begin = at;
        if (!is_white || !stripping->right) end = at;
    }
    return end > begin ? text_buffer_add(out, text + begin, end - begin, err) : OK;
}

const struct normalizer_kind normalizer_strip = { { "Strip", strip_read, NULL }, strip_apply, NULL };
