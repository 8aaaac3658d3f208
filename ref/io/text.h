/* text.h -- text data: every byte is a token (V = 256), and every batch depends only on (seed, step, sequence).
 *
 * The first nine tenths of a text are for training, the last tenth for validation.  Philox draws the offset of sequence
 * b of step t from (seed, split, t, b).  There is no state and no order: a device fills only its own sequences, and
 * every mesh gets the same batch.  Offsets are drawn with replacement.
 *
 * cli/train/, cli/golden/ and ref/io/samples.c read text through these functions.
 */
#ifndef ORRERY_TEXT_H
#define ORRERY_TEXT_H

#include "ref/io/packing.h"
#include <stdbool.h>
#include <stddef.h>

enum { TEXT_VOCABULARY = 256 };
enum { TEXT_TREE_LIMIT = 4 << 20 };     /* bytes: a fair limit for text_load_tree */

enum text_split { TEXT_TRAIN, TEXT_VALIDATION };

struct text {
    uint8_t *bytes;                     /* [count]; owned */
    int64_t count;                      /* tokens in all */
    int64_t train;                      /* [0, train) is for training, [train, count) for validation */
    bool whole;                         /* all of it is for training, and train is count */
    int files;                          /* number of files read */
    struct packing packing;             /* of the training part into sequences (samples.h); no samples: not cut */
    char name[200];                     /* for messages: the path, or the first path and how many more */
};

/**
 * Read files and concatenate them into one text.
 * @param paths  n >= 1 paths.
 * @return OK; ERR_FILE if one is missing, a folder or unreadable; ERR_FORMAT if all are empty; ERR_MEMORY.  On failure
 *         the text is empty and needs no text_free.
 */
enum error_code text_load(struct text *, const char *const *paths, int n, struct error *);

/* ref/text/plays.txt, which is a part of the program: Coriolanus and Richard III. */
extern const char text_plays[];
extern const size_t text_plays_bytes;

/** The text of the program itself, for those who have none at hand.  @return OK or ERR_MEMORY. */
enum error_code text_load_own(struct text *, struct error *);

/**
 * Read the sources and documents under a folder: *.c *.h *.md *.sh *.py and Makefile, in sorted order of their paths.
 * Folders named golden, work or build*, hidden ones and symbolic links are skipped.
 * @param limit  most bytes; the file that crosses the limit is cut there, later files are skipped.
 * @return as text_load; ERR_FORMAT also if there is no such file.
 */
enum error_code text_load_tree(struct text *, const char *root, int64_t limit, struct error *);

/** The text that a command line names: a file, a folder as of text_load_tree, or with NULL the program's own.
 *  @return as these. */
enum error_code text_load_named(struct text *, const char *path, struct error *);

/**
 * Check that a text is long enough for sequences of S tokens: S + 2 in each split that it has.
 * @return OK, or ERR_USAGE with the tokens that there are and those that are needed.
 */
enum error_code text_check_length(const struct text *, int64_t S, struct error *);

/** The offset of sequence b of a step in the text; the S + 1 tokens from there are in its split. */
int64_t text_offset(const struct text *, enum text_split, uint64_t seed, int64_t step, int64_t b, int64_t S);

/**
 * Fill sequences b0 .. b0 + count - 1 of the batch of a step.  The text must have passed text_check_length for S.
 * @param[out] inputs  [count,S], tokens o .. o + S - 1 of each sequence, o being its offset.
 * @param[out] labels  [count,S], tokens o + 1 .. o + S: the token after each input.
 */
void text_batch(const struct text *, enum text_split, uint64_t seed, int64_t step, int64_t S, int64_t b0, int64_t count,
                int32_t *inputs, int32_t *labels);

void text_free(struct text *);

#endif
