/* decoder.c -- the list of decoders, lists of texts, and how they go through decoders.  tokenizer.c calls
 * decoders_apply, the decoders the rest.  Errors are those of the kinds, and ERR_MEMORY. */
#include "ref/text/decoders/decoder.h"
#include <stdlib.h>

static const struct step_kind *const kinds[] = {
#define DECODER(symbol) &decoder_##symbol.step,
#include "ref/text/kinds.def"
    NULL
};

const struct step_room decoder_room = { "decoder", "decoders", kinds };

/* ---- lists of texts ---------------------------------------------------------------------------------------------- */

const char *token_texts_at(const struct token_texts *token_texts, int64_t i, size_t *bytes)
{
    const size_t begin = i ? token_texts->end[i - 1] : 0;
    *bytes = token_texts->end[i] - begin;
    return *bytes ? token_texts->text.text + begin : "";
}

enum error_code token_texts_end(struct token_texts *token_texts, struct error *err)
{
    enum { FIRST_ROOM = 64 };
    if (token_texts->count == token_texts->room) {
        const int64_t room = token_texts->room ? 2 * token_texts->room : FIRST_ROOM;
        size_t *end = realloc(token_texts->end, (size_t)room * sizeof *end);
        if (end == NULL) return fail(err, ERR_MEMORY, "no memory for the text of %lld tokens", (long long)room);
        token_texts->end = end, token_texts->room = room;
    }
    token_texts->end[token_texts->count++] = token_texts->text.bytes;
    return OK;
}

enum error_code token_texts_add(struct token_texts *token_texts, const char *text, size_t bytes, struct error *err)
{
    const enum error_code e = text_buffer_add(&token_texts->text, text, bytes, err);
    return e ? e : token_texts_end(token_texts, err);
}

void token_texts_free(struct token_texts *token_texts)
{
    text_buffer_free(&token_texts->text);
    free(token_texts->end);
    *token_texts = (struct token_texts){ 0 };
}

/* ---- decoders ---------------------------------------------------------------------------------------------------- */

enum error_code decoders_apply(const struct steps *steps, struct token_texts *texts, struct error *err)
{
    struct token_texts spare = { 0 };
    enum error_code e = OK;
    texts->text.most = spare.text.most = text_buffer_growth(texts->text.bytes);
    for (int i = 0; !e && i < steps->count; i++) {
        const struct decoder_kind *kind = (const struct decoder_kind *)steps->step[i].kind;
        const struct token_texts before = *texts;
        spare.text.bytes = 0, spare.count = 0, spare.unfinished = texts->unfinished;
        e = kind->apply(steps->step[i].state, &before, &spare, err);
        *texts = spare, spare = before;
    }
    token_texts_free(&spare);
    return e;
}

/* The pairs are replaced in this order, each in the result of the one before it. */
enum error_code token_text_clean_up(const char *text, size_t bytes, struct text_buffer *out, struct error *err)
{
    static const char *const pairs[][2] = {
        { " .", "." }, { " ?", "?" }, { " !", "!" }, { " ,", "," }, { " ' ", "'" }, { " n't", "n't" }, { " 'm", "'m" },
        { " do not", " don't" }, { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" } };
    struct text_buffer from = { 0 }, to = { 0 };
    enum error_code e = text_buffer_add(&from, text, bytes, err);
    for (size_t i = 0; !e && from.bytes && i < sizeof pairs / sizeof *pairs; i++) {
        const struct text_buffer before = from;
        to.bytes = 0;
        e = text_buffer_replaced(&to, from.text, from.bytes, pairs[i][0], pairs[i][1], err);
        from = to, to = before;
    }
    if (!e) e = text_buffer_add(out, from.text, from.bytes, err);
    text_buffer_free(&from), text_buffer_free(&to);
    return e;
}
