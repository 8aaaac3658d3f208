/* punctuation.c -- the splitter Punctuation: cuts at punctuation, also the ASCII signs that Unicode calls symbols.
 *
 * kinds.def lists it.  The table is of the library `tokenizers` (classes.h).  Errors: ERR_FORMAT of a wrong file,
 * ERR_MEMORY, and those of who takes the pieces.
 */
#include "ref/text/splitters/cut.h"

static enum error_code punctuation_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct cut), reading);
    struct cut *cut = *state;
    if (!e) *cut = (struct cut){ .find = cut_find_class, .finder = class_named("punctuation") };
    if (!e) e = step_keys(reading, object, "behavior");
    return e ? e : cut_read_behavior(reading, object, "Isolated", &cut->behavior);
}

static enum error_code punctuation_apply(void *state, struct piece piece, struct piece_taker *next, struct error *err)
{
    return cut_piece(state, piece, next, err);
}

const struct splitter_kind splitter_punctuation = { { "Punctuation", punctuation_read, NULL }, punctuation_apply };
