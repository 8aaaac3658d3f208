/* whitespace.c -- the splitter Whitespace: words, and what is neither word nor white space, are pieces.
 *
 * kinds.def lists it.  The library `tokenizers` writes it as the expression \w+|[^\w\s]+ of Rust, whose \w is a table
 * of its own (classes.h).  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY, and those of who takes the pieces.
 */
#include "ref/text/splitters/splitter.h"
#include "ref/text/utf8.h"
#include <stdlib.h>

struct whitespace { struct character_set word; };

enum sort { SORT_WHITE, SORT_WORD, SORT_OTHER };

static enum error_code whitespace_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct whitespace), reading);
    struct whitespace *whitespace = *state;
    if (e) return e;
    (void)character_set_add(&whitespace->word, "rust_word");
    return whitespace->word.no_memory ? step_no_memory(reading) : step_keys(reading, object, "");
}

static enum sort sort_of(const struct whitespace *whitespace, const struct character_class *white, uint32_t c)
{
    return character_set_has(&whitespace->word, c) ? SORT_WORD : class_has(white, c) ? SORT_WHITE : SORT_OTHER;
}

static enum error_code whitespace_apply(void *state, struct piece piece, struct piece_taker *next, struct error *err)
{
    const struct character_class *white = class_named("s");
    enum sort before = SORT_WHITE;
    size_t begin = 0;
    uint32_t c;
    for (size_t at = 0, n; at < piece.bytes; at += n) {
        n = (size_t)utf8_first(piece.text + at, piece.bytes - at, &c);
        const enum sort now = sort_of(state, white, c);
        if (now == before) continue;
        if (before != SORT_WHITE) {
            const enum error_code e = piece_pass(next, piece_part(piece, begin, at), err);
            if (e) return e;
        }
        begin = at, before = now;
    }
    return before == SORT_WHITE ? OK : piece_pass(next, piece_part(piece, begin, piece.bytes), err);
}

static void whitespace_close(void *state)
{
    struct whitespace *whitespace = state;
    character_set_free(&whitespace->word);
    free(whitespace);
}

const struct splitter_kind splitter_whitespace = { { "Whitespace", whitespace_read, whitespace_close },
                                                   whitespace_apply };
