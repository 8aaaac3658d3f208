/* nfc.c -- the normalizer NFC: characters and their marks become one character where Unicode has one.
 *
 * kinds.def lists it; unicode_form.c does the work.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/normalizers/unicode_form.h"

static enum error_code nfc_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                struct error *err)
{
    (void)state;
    return unicode_form_add((struct unicode_form){ .composed = true, .compatible = false }, text, bytes, out, err);
}

const struct normalizer_kind normalizer_nfc = { { "NFC", step_read_nothing, NULL }, nfc_apply, NULL };
