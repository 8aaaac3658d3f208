/* char_delimiter.c -- the splitter CharDelimiterSplit: cuts at one character, which is left out.
 *
 * kinds.def lists it.  Errors: ERR_FORMAT of a wrong file, ERR_MEMORY, and those of who takes the pieces.
 */
#include "ref/text/splitters/cut.h"
#include "ref/text/utf8.h"
#include <string.h>

/* The cut is first, and its finder is the character after it. */
struct char_delimiter {
    struct cut cut;
    char delimiter[UTF8_MOST + 1];
};

static enum error_code char_delimiter_find(const void *finder, const char *text, size_t bytes, struct match *match,
                                           struct error *err)
{
    const size_t n = strlen(finder);
    (void)err;
    for (size_t at = match->end; at + n <= bytes; at++)
        if (memcmp(text + at, finder, n) == 0) return *match = (struct match){ at, at + n, true }, OK;
    match->found = false;
    return OK;
}

static enum error_code char_delimiter_read(void **state, const struct step_reading *reading, const cJSON *object)
{
    const char *text;
    uint32_t c;
    enum error_code e = step_state(state, sizeof(struct char_delimiter), reading);
    struct char_delimiter *char_delimiter = *state;
    if (!e) e = step_keys(reading, object, "delimiter");
    if (!e) e = step_text(reading, object, "delimiter", NULL, &text);
    if (e) return e;
    if (*text == '\0' || utf8_first(text, strlen(text), &c) != (int)strlen(text))
        return step_wrong(reading, "delimiter: must be one character");
    strcpy(char_delimiter->delimiter, text);
    char_delimiter->cut = (struct cut){ .find = char_delimiter_find, .finder = char_delimiter->delimiter,
                                        .behavior = CUT_REMOVED };
    return OK;
}

static enum error_code char_delimiter_apply(void *state, struct piece piece, struct piece_taker *next,
                                            struct error *err)
{
    return cut_piece(&((struct char_delimiter *)state)->cut, piece, next, err);
}

const struct splitter_kind splitter_char_delimiter = { { "CharDelimiterSplit", char_delimiter_read, NULL },
                                                       char_delimiter_apply };
