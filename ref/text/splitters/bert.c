/* bert.c -- the splitter BertPreTokenizer: cuts at white space, which is left out, and at punctuation, which stays.
 *
 * kinds.def lists it.  The tables are of the library `tokenizers` (classes.h).  Errors: ERR_FORMAT of a wrong file, and
 * those of who takes the pieces.
 */
#include "ref/text/splitters/splitter.h"
#include "ref/text/utf8.h"

static enum error_code bert_apply(void *state, struct piece piece, struct piece_taker *next, struct error *err)
{
    const struct character_class *white = class_named("s"), *punctuation = class_named("punctuation");
    size_t begin = 0;
    uint32_t c;
    (void)state;
    for (size_t at = 0, n; at < piece.bytes; at += n) {
        n = (size_t)utf8_first(piece.text + at, piece.bytes - at, &c);
        const bool stays = class_has(punctuation, c);
        if (!stays && !class_has(white, c)) continue;
        enum error_code e = piece_pass(next, piece_part(piece, begin, at), err);
        if (!e && stays) e = piece_pass(next, piece_part(piece, at, at + n), err);
        if (e) return e;
        begin = at + n;
    }
    return piece_pass(next, piece_part(piece, begin, piece.bytes), err);
}

const struct splitter_kind splitter_bert = { { "BertPreTokenizer", step_read_nothing, NULL }, bert_apply };
