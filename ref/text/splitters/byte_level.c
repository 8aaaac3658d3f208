/* byte_level.c -- the splitter ByteLevel: cuts by GPT-2's expression, and passes on letters that stand for bytes.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, and of an expression that takes too many steps; ERR_MEMORY;
 * and those of who takes the pieces.
 */
#include "ref/text/splitters/cut.h"
#include "ref/text/byte_letters.h"
#include <stdlib.h>

/* GPT-2's own expression, which ByteLevel has in it. */
#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

struct byte_level {
    struct piece_taker taker;           /* of the pieces before they are letters; the first member */
    struct piece_taker *next;           /* who takes the letters */
    struct pattern *pattern;            /* NULL: the piece is not cut */
    bool space_first;                   /* a blank is put before a piece that does not begin with one */
    struct text_buffer spaced, letters; /* a piece with that blank; a piece as letters */
};

/* A part of the piece goes on as letters. */
static enum error_code level_splitter_take(struct piece_taker *taker, struct piece piece, struct error *err)
{
    struct byte_level *level = (struct byte_level *)taker;
    level->letters.bytes = 0;
    enum error_code e = piece.first ? byte_letters_add(&level->letters, piece.text, piece.first, err) : OK;
    const size_t first = level->letters.bytes;
    if (!e) e = byte_letters_add(&level->letters, piece.text + piece.first, piece.bytes - piece.first, err);
    return e ? e : piece_pass(level->next, (struct piece){ level->letters.text, level->letters.bytes, first }, err);
}

static enum error_code level_splitter_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    bool cuts = true, offsets;
    enum error_code e = step_state(state, sizeof(struct byte_level), reading);
    struct byte_level *level = *state;
    if (!e) e = step_keys(reading, object, "add_prefix_space trim_offsets use_regex");
    if (!e) e = step_flag(reading, object, "add_prefix_space", true, &level->space_first);
    /* trim_offsets is about places in the text, which nobody has here. */
    if (!e) e = step_flag(reading, object, "trim_offsets", true, &offsets);
    if (!e) e = step_flag(reading, object, "use_regex", true, &cuts);
    if (e) return e;
    level->taker.take = level_splitter_take;
    return cuts ? pattern_open(&level->pattern, GPT2_PATTERN, false, reading->path, reading->err) : OK;
}

static enum error_code level_splitter_apply(void *state, struct piece piece, struct piece_taker *next,
                                            struct error *err)
{
    struct byte_level *level = state;
    enum error_code e = OK;
    level->next = next;
    if (level->space_first && *piece.text != ' ') {
        level->spaced.bytes = 0;
        e = text_buffer_add(&level->spaced, " ", 1, err);
        if (!e) e = text_buffer_add(&level->spaced, piece.text, piece.bytes, err);
        piece.text = level->spaced.text, piece.bytes++, piece.first += piece.first > 0;
    }
    if (e) return e;
    if (level->pattern == NULL) return level_splitter_take(&level->taker, piece, err);
    const struct cut cut = { .find = cut_find_pattern, .finder = level->pattern, .behavior = CUT_ISOLATED };
    return cut_piece(&cut, piece, &level->taker, err);
}

static void level_splitter_close(void *state)
{
    struct byte_level *level = state;
    pattern_close(level->pattern);
    text_buffer_free(&level->spaced), text_buffer_free(&level->letters);
    free(level);
}

const struct splitter_kind splitter_byte_level = { { "ByteLevel", level_splitter_read, level_splitter_close },
                                                   level_splitter_apply };
