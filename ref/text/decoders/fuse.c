/* fuse.c -- the decoder Fuse: all texts become one.  kinds.def lists it.  Errors: ERR_FORMAT of a wrong file,
 * ERR_MEMORY. */
#include "ref/text/decoders/decoder.h"

static enum error_code fuse_apply(void *state, const struct token_texts *in, struct token_texts *out,
                                  struct error *err)
{
    (void)state;
    return token_texts_add(out, in->text.text, in->text.bytes, err);
}

const struct decoder_kind decoder_fuse = { { "Fuse", step_read_nothing, NULL }, fuse_apply };
