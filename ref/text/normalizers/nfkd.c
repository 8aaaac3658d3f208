/* nfkd.c -- the normalizer NFKD: as NFD, and characters such as ligatures become those they stand for.
 *
 * kinds.def lists it; unicode_form.c does the work.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY.
 */
#include "ref/text/normalizers/normalizer.h"
#include "ref/text/normalizers/unicode_form.h"

static enum error_code nfkd_apply(void *state, const char *text, size_t bytes, struct text_buffer *out,
                                struct error *err)
{
    (void)state;
    return unicode_form_add((struct unicode_form){ .composed = false, .compatible = true }, text, bytes, out, err);
}

const struct normalizer_kind normalizer_nfkd = { { "NFKD", step_read_nothing, NULL }, nfkd_apply, NULL };
