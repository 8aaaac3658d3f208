/* cut.h -- cuts a piece where matches are, and decides what becomes of the matches.
 *
 * Splitters of this folder call it: split.c, digits.c, metaspace.c, byte_level.c.  What finds matches is a function, so
 * that an expression, a class of characters or a single character can be what a splitter cuts at.
 */
#ifndef ORRERY_CUT_H
#define ORRERY_CUT_H

#include "ref/text/splitters/splitter.h"

/* A match becomes one of these, as `behavior` of the library has it. */
enum cut_behavior {
    CUT_ISOLATED,                       /* a piece of its own */
    CUT_REMOVED,                        /* left out */
    CUT_WITH_PREVIOUS,                  /* goes with the piece before it; a second match in a row is a piece */
    CUT_WITH_NEXT,                      /* goes with the piece after it; of matches in a row only the last */
    CUT_CONTIGUOUS                      /* matches in a row are one piece */
};

/** The next match of a text after *match, as pattern_next. */
typedef enum error_code cut_find_fn(const void *finder, const char *text, size_t bytes, struct match *, struct error *);

/* How to cut. */
struct cut {
    cut_find_fn *find;                  /* finds matches */
    const void *finder;                 /* its first argument */
    enum cut_behavior behavior;         /* what becomes of them */
    bool invert;                        /* matches are what is between those that `find` finds */
};

/** Cut a piece and pass the parts on.  @return as `apply` of a splitter. */
enum error_code cut_piece(const struct cut *, struct piece, struct piece_taker *next, struct error *);

/** A cut_find_fn: matches of a struct pattern. */
cut_find_fn cut_find_pattern;

/** A cut_find_fn: matches are the characters of a struct character_class. */
cut_find_fn cut_find_class;

/** Read "behavior" of an object.  @param usual  where it is missing; NULL: it must be there.  @return as the readers of
 *  step.h. */
enum error_code cut_read_behavior(const struct step_reading *, const cJSON *object, const char *usual,
                                  enum cut_behavior *out);

#endif
