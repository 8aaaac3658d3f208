/* text.h -- text data: every byte is a token (V = 256), and every batch depends only on (seed, step, sequence).
 *
 * The first nine tenths of a text are for training, the last tenth for validation.  Sequence b of step t starts at an
 * offset that Philox draws from (seed, split, t, b): no state and no order, so that a device fills exactly the
 * sequences it holds and every mesh sees the same batch.  Offsets are drawn with replacement.
 */
#ifndef ORRERY_TEXT_H
#define ORRERY_TEXT_H

#include "ref/error.h"
#include <stdint.h>

enum { TEXT_VOCABULARY = 256 };
enum { TEXT_TREE_LIMIT = 4 << 20 };     /* bytes: a fair limit for text_load_tree */

enum text_split { TEXT_TRAIN, TEXT_VALIDATION };

struct text {
    uint8_t *bytes;                     /* [count]; owned */
    int64_t count;                      /* tokens in all */
    int64_t train;                      /* [0, train) is for training, [train, count) for validation */
    int files;                          /* how many were read */
    char name[200];                     /* for messages: the path, or the first path and how many more */
};

/**
 * Read files, one after another, as one text.
 * @param paths  n >= 1 paths.
 * @return OK; ERR_FILE if one is missing, a folder or unreadable; ERR_FORMAT if all are empty; ERR_MEMORY.  On failure
 *         the text is empty and needs no text_free.
 */
enum error_code text_load(struct text *, const char *const *paths, int n, struct error *);

/**
 * Read the sources and documents under a folder: *.c *.h *.md *.sh *.py and Makefile, in sorted order of their paths.
 * Folders called golden, work or build*, and hidden ones, are left out, as are symbolic links.
 * @param limit  bytes at most; the file that would cross it is cut there, the rest is left out.
 * @return as text_load; ERR_FORMAT also if there is no such file.
 */
enum error_code text_load_tree(struct text *, const char *root, int64_t limit, struct error *);

/**
 * Check that a text is long enough for sequences of S tokens: S + 2 in each split.
 * @return OK, or ERR_USAGE with how many there are and how many are needed.
 */
enum error_code text_check_length(const struct text *, int64_t S, struct error *);

/** Where sequence b of a step starts, as an offset into the text; o + S + 1 tokens from there are in its split. */
int64_t text_offset(const struct text *, enum text_split, uint64_t seed, int64_t step, int64_t b, int64_t S);

/**
 * Fill sequences b0 .. b0 + count - 1 of the batch of a step.  The text must have passed text_check_length for S.
 * @param[out] inputs  [count,S], tokens o .. o + S - 1 of each sequence, o being its offset.
 * @param[out] labels  [count,S], tokens o + 1 .. o + S: what follows each input.
 */
void text_batch(const struct text *, enum text_split, uint64_t seed, int64_t step, int64_t S, int64_t b0, int64_t count,
                int32_t *inputs, int32_t *labels);

void text_free(struct text *);

#endif
