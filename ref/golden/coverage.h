/* coverage.h -- what the batch of a golden file cannot show: mistakes that leave every tensor of the file as it is.
 *
 * A rank that also takes the first label of the next shard is right while no label is one of these.  So each row of the
 * table in coverage.c looks for something that a batch needs to show a kind of mistake, and has the words for its lack.
 *
 * cli/golden/ prints the gaps of a file; cover.c draws a batch that has few of them.
 */
#ifndef ORRERY_COVERAGE_H
#define ORRERY_COVERAGE_H

#include "ref/golden/replay.h"

/* A golden file, or a batch that is to become one. */
struct coverage_view {
    const struct golden *golden;        /* config, steps, B, S, ids, labels, micros */
    const struct replay *run;           /* the file's run in fp64; NULL: only tokens are looked at */
};

enum { COVERAGE_TEXT = 512, COVERAGE_MOST_RANKS = 8 };

/* Called for each gap. */
struct coverage_listener {
    void *context;                      /**< First argument of `found`. */
    /* lack: what the batch does not have; hides: the mistakes that it does not show; need: the sizes or options that
     * would show them, "" if another batch of this size does. */
    void (*found)(void *context, const char *lack, const char *hides, const char *need);
};

/** Look for all that the table has, and tell the listener, which may be NULL, of each gap.  Pure.
 *  @return how many there are. */
int coverage_gaps(const struct coverage_view *, const struct coverage_listener *);

enum { COVERAGE_MOST_BORDERS = 4 * COVERAGE_MOST_RANKS,
       COVERAGE_ALL_BORDERS = COVERAGE_MOST_RANKS * COVERAGE_MOST_BORDERS };

/**
 * The tokens beside the borders of a vocabulary that `ranks` share: the last of each shard and the first of the next.
 * With one rank these are the first and the last token.  Shards differ by one token, or all but the last have V / ranks
 * rounded up (torch.chunk); both are taken.  A padding token is left out.  Pure.
 * @param[out] token  each once.
 * @return how many.
 */
int coverage_borders(const struct model_config *, int ranks, int64_t token[COVERAGE_MOST_BORDERS]);

/** Those of 1 to coverage_most_ranks ranks, each once.  Pure.  @return how many. */
int coverage_all_borders(const struct model_config *, int64_t token[COVERAGE_ALL_BORDERS]);

/** The most ranks along tp that share a vocabulary: no more than 8, and than heads. */
int coverage_most_ranks(const struct model_config *);

/** How many labels of sequence b a drawn batch ignores: those of its first tokens. */
int64_t coverage_ignored(const struct golden *, int64_t b);

#endif
