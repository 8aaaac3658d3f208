/* winnow.h -- fingerprints of texts in C or Python: what two texts have in common, whatever their names and blanks are.
 *
 * Schleimer, Wilkerson and Aiken, Winnowing: Local Algorithms for Document Fingerprinting, SIGMOD 2003.  Every sequence
 * of WINNOW_TOKENS tokens has a hash; of WINNOW_WINDOW hashes one after another the least is a fingerprint.  So every
 * common sequence of WINNOW_TOKENS + WINNOW_WINDOW - 1 tokens is found, and no shorter one than WINNOW_TOKENS.
 * similar.c compares the files of a class with these functions.
 */
#ifndef ORRERY_COURSE_WINNOW_H
#define ORRERY_COURSE_WINNOW_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In Python a line of the preprocessor does not exist, and # begins a comment anywhere. */
enum winnow_language { WINNOW_C, WINNOW_PYTHON };

/* Sequences shorter than 12 tokens, such as the head of a loop, are in every text.  With a window of 8 every copy of
 * 19 tokens is found, about two lines. */
enum { WINNOW_TOKENS = 12, WINNOW_WINDOW = 8 };

struct fingerprint { uint64_t hash; int32_t token; };   /* of the sequence that begins at this token */

struct winnowed {
    int tokens;                         /* of the text */
    int32_t *line;                      /* [tokens] from 1 on */
    int prints;                         /* fingerprints, by hash, then by place */
    struct fingerprint *print;          /* [prints] */
};

/**
 * Read a text: comments, blanks and lines of the preprocessor are left out, names are all alike, and so are numbers,
 * and texts in quotes.
 * @param size      bytes, any.
 * @param known     sequences that are no evidence, such as those of the file that all students began with; NULL: none.
 * @param every     keep the hash of every sequence, as `known` needs it; false: winnow.
 * @return OK or ERR_MEMORY; winnow_free after both.
 */
enum error_code winnow(struct winnowed *, enum winnow_language, const char *text, size_t size,
                       const struct winnowed *known, bool every, struct error *);
void winnow_free(struct winnowed *);

/** Mark the tokens of a that are in sequences which b has, too.  @param mark  [a->tokens].  @return how many. */
int winnow_common(const struct winnowed *a, const struct winnowed *b, bool *mark);

#endif
