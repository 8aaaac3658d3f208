/* nfkc.c -- the normalizer NFKC: as NFC, and characters such as ligatures become those they stand for.
 *
 * kinds.def lists it; unicode_form.c does the work.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/normalizers/unicode_form.h"

static enum error_code nfkc_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                struct error *err)
{
    (void)state;
    return unicode_form_add((struct unicode_form){ .composed = true, .compatible = true }, text, bytes, out, err);
}

const struct normalizer_kind normalizer_nfkc = { { "NFKC", step_read_nothing, NULL }, nfkc_apply, NULL };
