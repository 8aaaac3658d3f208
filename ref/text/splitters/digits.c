/* digits.c -- the splitter Digits: numbers are pieces of their own, or each digit is.
 *
 * kinds.def lists it.  A digit is what Rust's char::is_numeric takes for one, which is a table of classes.h.  Errors:
 * ERR_FORMAT of a wrong file, ERR_MEMORY, and those of who takes the pieces.
 */
#include "ref/text/splitters/cut.h"
#include "ref/text/utf8.h"

static enum error_code digits_find(const void *finder, const char *text, size_t bytes, struct match *match,
                                   struct error *err)
{
    const struct character_class *numeric = finder;
    uint32_t c;
    (void)err;
    for (size_t at = match->end; at < bytes;) {
        const int n = utf8_first(text + at, bytes - at, &c);
        if (class_has(numeric, c)) return *match = (struct match){ at, at + (size_t)n, true }, OK;
        at += (size_t)n;
    }
    match->found = false;
    return OK;
}

static enum error_code digits_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    bool alone = false;
    enum error_code e = step_state(state, sizeof(struct cut), reading);
    if (!e) e = step_keys(reading, object, "individual_digits");
    if (!e) e = step_flag(reading, object, "individual_digits", false, &alone);
    if (e) return e;
    *(struct cut *)*state = (struct cut){ .find = digits_find, .finder = class_named("numeric"),
                                          .behavior = alone ? CUT_ISOLATED : CUT_CONTIGUOUS };
    return OK;
}

static enum error_code digits_apply(void *state, struct piece piece, struct piece_taker *next, struct error *err)
{
    return cut_piece(state, piece, next, err);
}

const struct splitter_kind splitter_digits = { { "Digits", digits_read, NULL }, digits_apply };
