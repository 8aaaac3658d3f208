/* patterns.h -- the regular expressions that tokenizer files split texts with.
 *
 * They are written for Oniguruma, and PCRE2 matches them here.  Where the two differ they are rewritten: classes of
 * characters are ranges of our own tables (character_sets.h), since the libraries know different versions of Unicode;
 * X{1,3}+, which is possessive for PCRE2 alone, becomes (?:X{1,3})+; ^ and $ are about lines, as in Ruby.  A class that
 * there is no table for is refused, and so is what PCRE2 reads in another way, such as (?i:ss) and \K.
 *
 * step.c opens patterns.  Files of normalizers/, splitters/ and decoders/ match them.
 */
#ifndef ORRERY_PATTERNS_H
#define ORRERY_PATTERNS_H

#include "ref/text/character_sets.h"
#include "ref/text/text_buffer.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pattern;

/**
 * Compile an expression.
 * @param plain  it is a text to be found as it is.
 * @param where  names it in messages.
 * @return OK; ERR_FORMAT with the fault and its place, or the class that is not known; ERR_MEMORY.
 */
enum error_code pattern_open(struct pattern **, const char *text, bool plain, const char *where, struct error *);
void pattern_close(struct pattern *);

/* A place in a text.  All zero, it is the place before the first match. */
struct match {
    size_t begin, end;                  /* bytes [begin, end) of the text */
    bool found;                         /* there is such a place */
};

/**
 * The next match, as the library walks over a text: an empty match counts, but not at the end of the match before it.
 * @param text           valid UTF-8, which is not checked: that would take quadratic time.
 * @param[in,out] match  the match before; `found` is false if there is no other.
 * @return OK; ERR_FORMAT if the search has ended at PCRE2's limit of steps or memory.  Not for several threads with one
 *         pattern.
 */
enum error_code pattern_next(struct pattern *, const char *text, size_t bytes, struct match *match, struct error *);

/** Whether it can match between two characters, as x* does. */
bool pattern_matches_nothing(const struct pattern *);

/** Add a text in which each match is `content`.  @return as pattern_next, or ERR_MEMORY. */
enum error_code pattern_replace(struct pattern *, const char *text, size_t bytes, const char *content,
                                struct text_buffer *out, struct error *);

#endif
