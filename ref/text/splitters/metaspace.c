/* metaspace.c -- the splitter Metaspace: writes a sign for blanks, as sentencepiece does, and cuts before the sign.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY, and those of who takes the pieces.
 */
#include "ref/text/splitters/cut.h"
#include "ref/text/text_buffer.h"
#include "ref/text/utf8.h"
#include <stdlib.h>
#include <string.h>

struct metaspace {
    char sign[UTF8_MOST + 1];           /* what blanks become */
    enum { SIGN_NEVER, SIGN_FIRST, SIGN_ALWAYS } prepend;       /* when a piece gets one at its beginning */
    bool cuts;                          /* cut before each sign */
    struct text_buffer text;            /* the piece with signs */
};

static bool metaspace_begins(const char *text, size_t bytes, const char *sign)
{
    const size_t n = strlen(sign);
    return bytes >= n && memcmp(text, sign, n) == 0;
}

static enum error_code metaspace_find(const void *finder, const char *text, size_t bytes, struct match *match,
                                      struct error *err)
{
    const struct metaspace *space = finder;
    (void)err;
    match->found = false;
    for (size_t at = match->end; at < bytes && !match->found; at++)
        if (metaspace_begins(text + at, bytes - at, space->sign))
            *match = (struct match){ at, at + strlen(space->sign), true };
    return OK;
}

/* Older files have add_prefix_space: false means "never", and the library refuses another prepend_scheme then. */
static enum error_code metaspace_read_prepend(struct metaspace *metaspace, const struct step_reading *reading,
                                              const cJSON *object)
{
    static const char *const schemes[] = { "never", "first", "always" };
    const char *scheme;
    bool prefix;
    size_t i = 0;
    enum error_code e = step_flag(reading, object, "add_prefix_space", true, &prefix);
    if (!e) e = step_text(reading, object, "prepend_scheme", prefix ? "always" : "never", &scheme);
    if (e) return e;
    while (i < sizeof schemes / sizeof *schemes && strcmp(schemes[i], scheme) != 0) i++;
    if (i == sizeof schemes / sizeof *schemes) return step_wrong(reading, "prepend_scheme: is always, first or never");
    metaspace->prepend = i;
    return prefix || i == SIGN_NEVER ? OK : step_wrong(reading, "add_prefix_space and prepend_scheme contradict");
}

static enum error_code metaspace_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const char *sign;
    uint32_t c;
    enum error_code e = step_state(state, sizeof(struct metaspace), reading);
    struct metaspace *metaspace = *state;
    if (!e) e = step_keys(reading, object, "replacement add_prefix_space prepend_scheme split str_rep");
    if (!e) e = step_text(reading, object, "replacement", NULL, &sign);
    if (e) return e;
    if (*sign == '\0' || utf8_first(sign, strlen(sign), &c) != (int)strlen(sign))
        return step_wrong(reading, "replacement: must be one character");
    strcpy(metaspace->sign, sign);
    e = step_flag(reading, object, "split", true, &metaspace->cuts);
    return e ? e : metaspace_read_prepend(metaspace, reading, object);
}

static enum error_code metaspace_apply(void *state, struct piece piece, struct piece_taker *next, struct error *err)
{
    struct metaspace *metaspace = state;
    const bool there = *piece.text == ' ' || metaspace_begins(piece.text, piece.bytes, metaspace->sign);
    const bool put = !there && (metaspace->prepend == SIGN_ALWAYS || (metaspace->prepend == SIGN_FIRST && piece.first));
    const char *sign = metaspace->sign;
    struct text_buffer *text = &metaspace->text;
    text->bytes = 0;
    enum error_code e = text_buffer_add(text, sign, put ? strlen(sign) : 0, err);
    if (!e) e = text_buffer_replaced(text, piece.text, piece.first, " ", sign, err);
    const size_t first = piece.first ? text->bytes : 0;
    if (!e) e = text_buffer_replaced(text, piece.text + piece.first, piece.bytes - piece.first, " ", sign, err);
    if (e) return e;
    piece = (struct piece){ text->text, text->bytes, first };
    const struct cut cut = { .find = metaspace_find, .finder = metaspace, .behavior = CUT_WITH_NEXT };
    return metaspace->cuts ? cut_piece(&cut, piece, next, err) : piece_pass(next, piece, err);
}

static void metaspace_close(void *state)
{
    struct metaspace *metaspace = state;
    text_buffer_free(&metaspace->text);
    free(metaspace);
}

const struct splitter_kind splitter_metaspace = { { "Metaspace", metaspace_read, metaspace_close }, metaspace_apply };
