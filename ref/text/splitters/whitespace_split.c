/* whitespace_split.c -- the splitter WhitespaceSplit: cuts at white space, which is left out.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY, and those of who takes the pieces.
 */
#include "ref/text/splitters/cut.h"

static enum error_code whitespace_split_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct cut), reading);
    if (!e) *(struct cut *)*state = (struct cut){ .find = cut_find_class, .finder = class_named("s"),
                                                  .behavior = CUT_REMOVED };
    return e ? e : step_keys(reading, object, "");
}

static enum error_code whitespace_split_apply(void *state, struct piece piece, struct piece_taker *next,
                                              struct error *err)
{
    return cut_piece(state, piece, next, err);
}

const struct splitter_kind splitter_whitespace_split = { { "WhitespaceSplit", whitespace_split_read, NULL },
                                                         whitespace_split_apply };
