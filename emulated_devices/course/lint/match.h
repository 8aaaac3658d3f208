/* match.h -- the traces of all devices held against each other: which calls do not match.
 *
 * lint.c calls match_traces() for each case.  A send is complete when its receive has begun, as a long message is.
 */
#ifndef ORRERY_LINT_MATCH_H
#define ORRERY_LINT_MATCH_H

#include "emulated_devices/course/lint/run.h"

enum { MATCH_TEXT = 400 };

/* One mismatch has lines and devices; -1: none. */
struct mismatch {
    const char *kind;                   /* one word, of the table in docs/authors/lint.md; NULL: nothing is wrong */
    int line, other_line, device, other;
    char text[MATCH_TEXT];              /**< Sentence about the mismatch. */
};

/** Find the first mismatch of a case.  @return false: there was no memory. */
bool match_traces(const struct lint_case *, struct mismatch *);

#endif
