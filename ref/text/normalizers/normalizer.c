/* normalizer.c -- the list of normalizers, and how a text goes through them.  tokenizer.c calls normalizers_apply;
 * errors are those of the kinds. */
#include "ref/text/normalizers/normalizer.h"

static const struct step_kind *const kinds[] = {
#define NORMALIZER(symbol) &normalizer_##symbol.step,
#include "ref/text/kinds.def"
    NULL
};

const struct step_room normalizer_room = { "normalizer", "normalizers", kinds };

static enum error_code normalizer_first(const struct step *step, const struct text_buffer *text, size_t *first,
                                        struct error *err)
{
    const struct normalizer_kind *kind = (const struct normalizer_kind *)step->kind;
    struct text_buffer alone = { .most = text->most };
    if (*first == 0) return OK;
    if (kind->first) return kind->first(step->state, text->text, text->bytes, first, err);
    const enum error_code e = kind->apply(step->state, text->text, *first, &alone, err);
    *first = alone.bytes;
    text_buffer_free(&alone);
    return e;
}

/* Marks may have joined the first character: then what it has become is longer than what it becomes alone. */
static void normalizer_first_ends(const struct text_buffer *text, size_t *first)
{
    if (*first > text->bytes) *first = text->bytes;
    while (*first < text->bytes && ((unsigned char)text->text[*first] & 0xC0) == 0x80) ++*first;
}

static enum error_code normalizers_run(const struct steps *steps, struct text_buffer *text, struct text_buffer *spare,
                                       size_t *first, struct error *err)
{
    for (int i = 0; i < steps->count && text->bytes > 0; i++) {
        const struct normalizer_kind *kind = (const struct normalizer_kind *)steps->step[i].kind;
        const struct text_buffer before = *text;
        spare->bytes = 0;
        enum error_code e = normalizer_first(&steps->step[i], text, first, err);
        if (!e) e = kind->apply(steps->step[i].state, text->text, text->bytes, spare, err);
        if (e) return e;
        *text = *spare, *spare = before;
        normalizer_first_ends(text, first);
    }
    return OK;
}

enum error_code normalizers_apply(const struct steps *steps, struct text_buffer *text, struct text_buffer *spare,
                                  size_t *first, struct error *err)
{
    text->most = spare->most = text_buffer_growth(text->bytes);
    const enum error_code e = normalizers_run(steps, text, spare, first, err);
    text->most = spare->most = 0;
    return e;
}
