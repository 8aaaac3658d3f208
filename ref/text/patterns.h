/* patterns.h -- the regular expressions that tokenizer files split texts with.
 *
 * They are written for Oniguruma, and PCRE2 matches them here.  Where the two differ they are rewritten: classes of
 * characters are tables of our own (classes.h), since the libraries know different versions of Unicode; X{1,3}+, which
 * is possessive for PCRE2 alone, becomes (?:X{1,3})+.  A class that there is no table for is refused.
 *
 * tokenizer_read.c opens patterns and tokenizer.c matches them.
 */
#ifndef ORRERY_PATTERNS_H
#define ORRERY_PATTERNS_H

#include "ref/error.h"
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

/**
 * The first match from a place on that is not empty.
 * @param text        valid UTF-8, which is not checked: that would take quadratic time.
 * @param[out] begin  and end: of the match.
 * @return whether there is one.  Not for several threads with one pattern.
 */
bool pattern_next(struct pattern *, const char *text, size_t bytes, size_t from, size_t *begin, size_t *end);

/** Whether a search since the last call has ended at the library's limit of steps or memory, and found nothing. */
bool pattern_gave_up(struct pattern *);

/** Whether a code point is in a class of classes.h: "s", white space; "reordered", marks that NFC moves; "numeric",
 *  what the splitter Digits takes for a digit; "L"... */
bool is_in_class(uint32_t c, const char *name);

#endif
