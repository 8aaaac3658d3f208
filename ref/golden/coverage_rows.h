/* coverage_rows.h -- a row of the table of coverage.c, and the looks that coverage_tokens.c has.
 *
 * coverage.c and coverage_tokens.c include this file, no others.
 */
#ifndef ORRERY_COVERAGE_ROWS_H
#define ORRERY_COVERAGE_ROWS_H

#include "ref/golden/coverage.h"

/* Words that are written one after another; what has no room is left out. */
struct words { char *text; size_t size; };
void words_add(struct words *, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct coverage_row {
    bool (*applies)(const struct coverage_view *);                      /* to the model; NULL: to every model */
    bool (*lacks)(const struct coverage_view *, struct words *);        /* whether it is missing, and what exactly */
    const char *hides;                                                  /* the mistakes that do not show then */
    void (*needs)(const struct coverage_view *, struct words *);        /* sizes that would show them; NULL: any does */
};

static inline int64_t coverage_tokens(const struct golden *golden) { return golden->B * golden->S; }

bool lacks_border_labels(const struct coverage_view *, struct words *);
bool lacks_border_tokens(const struct coverage_view *, struct words *);
bool lacks_repeats(const struct coverage_view *, struct words *);
bool lacks_ignored(const struct coverage_view *, struct words *);
bool lacks_last_labels(const struct coverage_view *, struct words *);
bool lacks_uneven_sequences(const struct coverage_view *, struct words *);
bool lacks_uneven_tokens(const struct coverage_view *, struct words *);
bool lacks_a_count_beyond_bf16(const struct coverage_view *, struct words *);
void needs_borders(const struct coverage_view *, struct words *);
void needs_two_tokens(const struct coverage_view *, struct words *);
void needs_more_labels(const struct coverage_view *, struct words *);

#endif
