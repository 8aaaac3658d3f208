/* cut.c -- cuts a piece at matches.  Splitters call it: split.c, digits.c, metaspace.c and byte_level.c.  Errors are
 * those of what finds matches and of who takes the parts; ERR_FORMAT of a wrong file. */
#include "ref/text/splitters/cut.h"
#include "ref/text/utf8.h"
#include <stdio.h>
#include <string.h>

/* A piece that is being cut.  A part may wait for the one after it, which may join. */
struct cutting {
    const struct cut *cut;
    struct piece whole;
    struct piece_taker *next;
    size_t begin, end;                  /* of the part that waits */
    bool waits, was_match;              /* whether one waits; whether the last part was a match */
};

static enum error_code cut_pass_waiting(struct cutting *cutting, struct error *err)
{
    if (!cutting->waits) return OK;
    cutting->waits = false;
    return piece_pass(cutting->next, piece_part(cutting->whole, cutting->begin, cutting->end), err);
}

/* The part joins the one that waits, or waits in its place. */
static enum error_code cut_join(struct cutting *cutting, size_t begin, size_t end, bool joins, struct error *err)
{
    if (joins && cutting->waits) return cutting->end = end, OK;
    const enum error_code e = cut_pass_waiting(cutting, err);
    cutting->begin = begin, cutting->end = end, cutting->waits = true;
    return e;
}

static enum error_code cut_part(struct cutting *cutting, size_t begin, size_t end, bool match, struct error *err)
{
    const bool was_match = cutting->was_match;
    const struct piece part = piece_part(cutting->whole, begin, end);
    cutting->was_match = match;
    switch (cutting->cut->behavior) {
    case CUT_ISOLATED: return piece_pass(cutting->next, part, err);
    case CUT_REMOVED: return match ? OK : piece_pass(cutting->next, part, err);
    case CUT_CONTIGUOUS: return cut_join(cutting, begin, end, match == was_match, err);
    case CUT_WITH_PREVIOUS: return cut_join(cutting, begin, end, match && !was_match, err);
    default: return cut_join(cutting, begin, end, !match && was_match, err);
    }
}

/* Matches and what is between them, in their order. */
enum error_code cut_piece(const struct cut *cut, struct piece piece, struct piece_taker *next, struct error *err)
{
    struct cutting cutting = { .cut = cut, .whole = piece, .next = next };
    struct match match = { 0 };
    size_t done = 0;
    for (;;) {
        enum error_code e = cut->find(cut->finder, piece.text, piece.bytes, &match, err);
        if (e) return e;
        if (!match.found) break;
        if (match.begin > done) e = cut_part(&cutting, done, match.begin, cut->invert, err);
        if (!e) e = cut_part(&cutting, match.begin, match.end, !cut->invert, err);
        if (e) return e;
        done = match.end;
    }
    enum error_code e = OK;
    if (done < piece.bytes) e = cut_part(&cutting, done, piece.bytes, cut->invert, err);
    return e ? e : cut_pass_waiting(&cutting, err);
}

enum error_code cut_find_pattern(const void *finder, const char *text, size_t bytes, struct match *match,
                                 struct error *err)
{
    return pattern_next((struct pattern *)finder, text, bytes, match, err);
}

enum error_code cut_find_class(const void *finder, const char *text, size_t bytes, struct match *match,
                               struct error *err)
{
    const struct character_class *character_class = finder;
    uint32_t c;
    (void)err;
    for (size_t at = match->end; at < bytes;) {
        const size_t n = (size_t)utf8_first(text + at, bytes - at, &c);
        if (class_has(character_class, c)) return *match = (struct match){ at, at + n, true }, OK;
        at += n;
    }
    match->found = false;
    return OK;
}

enum error_code cut_read_behavior(const struct step_reading *reading, const cJSON *object, const char *usual,
                                  enum cut_behavior *out)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    const char *behavior;
    char what[120];
    const enum error_code e = step_text(reading, object, "behavior", usual, &behavior);
    if (e) return e;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(behavior, names[i]) == 0) return *out = (enum cut_behavior)i, OK;
    snprintf(what, sizeof what, "behavior: %s", behavior);
    return step_refuse(reading, what);
}
