/* normalizer.c -- the list of normalizers, and how a text goes through them.  tokenizer.c calls normalizers_apply;
 * errors are those of the kinds. */
#include "ref/text/normalizers/normalizer.h"

static const struct step_kind *const kinds[] = {
#define NORMALIZER(symbol) &normalizer_##symbol.step,
#include "ref/text/kinds.def"
    NULL
};

const struct step_room normalizer_room = { "normalizer", "normalizers", kinds };

enum error_code normalizers_apply(const struct steps *steps, struct text_buffer *text, struct text_buffer *spare,
                                  struct error *err)
{
    for (int i = 0; i < steps->count && text->bytes > 0; i++) {
        const struct normalizer_kind *kind = (const struct normalizer_kind *)steps->step[i].kind;
        const struct text_buffer before = *text;
        spare->bytes = 0;
        const enum error_code e = kind->apply(steps->step[i].state, text->text, text->bytes, spare, err);
        if (e) return e;
        *text = *spare, *spare = before;
    }
    return OK;
}
