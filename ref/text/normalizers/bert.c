/* bert.c -- the normalizer BertNormalizer: control characters go, Chinese characters stand alone, accents and capitals
 * go.
 *
 * kinds.def lists it.  The tables are of the library `tokenizers` (classes.h), the Chinese characters those of
 * normalizers/bert.rs there.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/normalizers/characters.h"
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/normalizers/unicode_form.h"
#include <stdlib.h>

struct bert_normalizer {
    bool clean, chinese, accents, lower;        /* accents: they are removed */
    struct text_buffer one, other;              /* between the steps */
};

static enum error_code bert_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct bert_normalizer), reading);
    struct bert_normalizer *bert = *state;
    if (!e) e = step_keys(reading, object, "clean_text handle_chinese_chars strip_accents lowercase");
    if (!e) e = step_flag(reading, object, "clean_text", true, &bert->clean);
    if (!e) e = step_flag(reading, object, "handle_chinese_chars", true, &bert->chinese);
    if (!e) e = step_flag(reading, object, "lowercase", true, &bert->lower);
    /* null means: if and only if capitals go, too. */
    return e ? e : step_flag(reading, object, "strip_accents", bert->lower, &bert->accents);
}

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Control characters and what Chinese characters get around them. */
static enum error_code bert_clean(const struct bert_normalizer *bert, const char *text, size_t bytes,
                                  struct text_buffer *out, struct error *err)
{
    const struct character_class *control = class_named("control"), *white = class_named("s");
    enum error_code e = text_buffer_reserve(out, bytes, err);
    uint32_t c;
    for (size_t at = 0; !e && at < bytes;) {
        at += (size_t)utf8_first(text + at, bytes - at, &c);
        if (bert->clean && (c < ' ' || c >= 0x7F) && class_has(control, c)) continue;
        if (bert->clean && class_has(white, c)) c = ' ';
        const bool alone = bert->chinese && is_chinese(c);
        if (alone) e = text_buffer_put(out, ' ', err);
        if (!e) e = text_buffer_put(out, c, err);
        if (!e && alone) e = text_buffer_put(out, ' ', err);
    }
    return e;
}

static enum error_code bert_remove_marks(const struct text_buffer *text, struct text_buffer *out, struct error *err)
{
    const struct character_class *mark = class_named("bert_mark");
    enum error_code e = text_buffer_reserve(out, text->bytes, err);
    uint32_t c;
    for (size_t at = 0, n; !e && at < text->bytes; at += n) {
        n = (size_t)utf8_first(text->text + at, text->bytes - at, &c);
        if (c < 0x80 || !class_has(mark, c)) e = text_buffer_add(out, text->text + at, n, err);
    }
    return e;
}

static enum error_code bert_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                  struct error *err)
{
    struct bert_normalizer *bert = state;
    struct text_buffer *now = &bert->one, *next = &bert->other;
    now->bytes = 0;
    enum error_code e = bert_clean(bert, text, bytes, now, err);
    if (!e && bert->accents) {
        next->bytes = 0;
        e = unicode_form_add((struct unicode_form){ .composed = false }, now->text, now->bytes, next, err);
        now->bytes = 0;
        if (!e) e = bert_remove_marks(next, now, err);
    }
    if (e) return e;
    return bert->lower ? characters_lower(now->text, now->bytes, out, err)
                       : text_buffer_add(out, now->text, now->bytes, err);
}

static void bert_close(void *state)
{
    struct bert_normalizer *bert = state;
    text_buffer_free(&bert->one);
    text_buffer_free(&bert->other);
    free(bert);
}

const struct normalizer_kind normalizer_bert = { { "BertNormalizer", bert_read, bert_close }, bert_apply, NULL };
