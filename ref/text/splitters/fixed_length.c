/* fixed_length.c -- the splitter FixedLength: pieces of as many characters, and a shorter one at the end.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY, and those of who takes the pieces.
 */
#include "ref/text/splitters/splitter.h"

enum { LENGTH_USUAL = 5, LENGTH_MOST = 1 << 30 };

static enum error_code fixed_length_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    enum error_code e = step_state(state, sizeof(int64_t), reading);
    if (!e) e = step_keys(reading, object, "length");
    if (!e) e = step_count(reading, object, "length", LENGTH_MOST, LENGTH_USUAL, *state);
    return e || *(int64_t *)*state > 0 ? e : step_wrong(reading, "length: must be above 0");
}

static enum error_code fixed_length_apply(void *state, struct piece piece, struct piece_taker *next, struct error *err)
{
    const int64_t length = *(const int64_t *)state;
    int64_t characters = 0;
    size_t begin = 0;
    enum error_code e = OK;
    for (size_t at = 0; !e && at < piece.bytes; at++) {
        const bool character_begins = ((uint8_t)piece.text[at] & 0xC0) != 0x80;
        if (!character_begins || characters++ == 0 || (characters - 1) % length) continue;
        e = piece_pass(next, piece_part(piece, begin, at), err);
        begin = at;
    }
    return e ? e : piece_pass(next, piece_part(piece, begin, piece.bytes), err);
}

const struct splitter_kind splitter_fixed_length = { { "FixedLength", fixed_length_read, NULL }, fixed_length_apply };
