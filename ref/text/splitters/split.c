/* split.c -- the splitter Split: cuts at the matches of a text or an expression.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, and of an expression that takes too many steps; ERR_MEMORY;
 * and those of who takes the pieces.
 */
#include "ref/text/splitters/cut.h"
#include <stdlib.h>

/* The state is a cut whose finder is a pattern. */
static enum error_code split_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(struct cut), reading);
    struct cut *cut = *state;
    if (!e) e = step_keys(reading, object, "pattern behavior invert");
    if (!e) e = cut_read_behavior(reading, object, NULL, &cut->behavior);
    if (!e) e = step_flag(reading, object, "invert", false, &cut->invert);
    if (e) return e;
    cut->find = cut_find_pattern;
    return step_pattern(reading, object, (struct pattern **)&cut->finder);
}

static enum error_code split_apply(void *state, struct piece piece, struct piece_taker *next, struct error *err)
{
    return cut_piece(state, piece, next, err);
}

static void split_close(void *state)
{
    struct cut *cut = state;
    pattern_close((struct pattern *)cut->finder);
    free(cut);
}

const struct splitter_kind splitter_split = { { "Split", split_read, split_close }, split_apply };
