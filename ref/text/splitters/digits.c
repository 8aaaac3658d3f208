/* digits.c -- the splitter Digits: numbers are pieces of their own, or each digit is.
 *
 * kinds.def lists it.  A digit is what Rust's char::is_numeric takes for one, which is a table of classes.h.  Errors:
 * ERR_FORMAT of a wrong file, ERR_MEMORY, and those of who takes the pieces.
 */
#include "ref/text/splitters/cut.h"

static enum error_code digits_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    bool alone = false;
    enum error_code e = step_state(state, sizeof(struct cut), reading);
    if (!e) e = step_keys(reading, object, "individual_digits");
    if (!e) e = step_flag(reading, object, "individual_digits", false, &alone);
    if (e) return e;
    *(struct cut *)*state = (struct cut){ .find = cut_find_class, .finder = class_named("numeric"),
                                          .behavior = alone ? CUT_ISOLATED : CUT_CONTIGUOUS };
    return OK;
}

static enum error_code digits_apply(void *state, struct piece piece, struct piece_taker *next, struct error *err)
{
    return cut_piece(state, piece, next, err);
}

const struct splitter_kind splitter_digits = { { "Digits", digits_read, NULL }, digits_apply };
