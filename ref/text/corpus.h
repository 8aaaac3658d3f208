/* corpus.h -- sequences to train on, of several files of tokens: which one is sequence n of a run.
 *
 * A file is cut into windows of S tokens; window w has the tokens w S .. w S + S, of which the last is only a label.
 * What is left of the file, fewer than S + 1 tokens, is not used.  Files lie one after the other in a group.  The
 * windows of a group come in an order that the seed draws (ref/numeric/permutation.h), each once; then all of them in
 * another order, and so on.  Groups have shares, whole numbers: of each run of `period` sequences, their sum, a group
 * has as many as its share.  The next is of the group that is furthest behind its share, the first of equals.
 *
 * So sequence n is a function of (seed, files, shares, S, n): there is no state, a device computes only its own, and
 * a run that goes on at sequence n needs no other number.
 *
 * train/data/ trains on a corpus; every device opens its own and fills its own sequences.
 */
#ifndef ORRERY_CORPUS_H
#define ORRERY_CORPUS_H

#include "ref/text/token_file.h"

enum { CORPUS_MOST_PERIOD = 1 << 16 };

/* A part of a file. */
struct corpus_part {
    const struct token_file *file;      /* the caller's */
    int64_t first, count;               /* tokens */
    int share;                          /* a group of its own, with this share; 0: it joins the part before it */
    int64_t windows, before;            /* set by corpus_open: its own, and those of its group before it */
};

struct corpus_group {
    int part, parts;                    /* the first, how many */
    int share, taken;                   /* of a period; while turns are made: how many it has */
    int64_t windows;                    /* windows of all its parts */
    uint64_t stream;                    /* of its order */
};
struct corpus_turn { int32_t group, taken; };           /* whose turn it is, how often it has been in this period */

struct corpus {
    struct corpus_part *part;           /* [parts] */
    struct corpus_group *group;         /* [groups] */
    struct corpus_turn *turn;           /* [period] */
    int parts, groups, period;          /* 0: there is none */
    int64_t S, windows;                 /* tokens of a sequence; windows of all groups */
    uint64_t seed;                      /* of the order of windows */
};

/**
 * Cut parts of files into windows.
 * @param part  [n] copied.
 * @param n     how many, at least 1.
 * @param S     tokens of a sequence.
 * @param seed  of the order.
 * @param use   what for, for messages and the order: "training", "validation".
 * @return OK; ERR_USAGE if a group has no window, or shares add up to more than CORPUS_MOST_PERIOD; ERR_MEMORY.  After
 *         a failure there is nothing to close.
 */
enum error_code corpus_open(struct corpus *, const struct corpus_part *part, int n, int64_t S, uint64_t seed,
                            const char *use, struct error *);
void corpus_close(struct corpus *);

/** Where a sequence begins: S + 1 tokens from there are its own.
 *  @param n          its number in the run.
 *  @param[out] part  in which part it is.
 *  @return the number of its first token in the part's file. */
int64_t corpus_window(const struct corpus *, int64_t n, int *part);

/**
 * Fill sequences.
 * @param n      the number of the first.
 * @param count  how many.
 * @param[out] inputs  [count,S] tokens.
 * @param[out] labels  [count,S] the token after each.
 */
void corpus_fill(const struct corpus *, int64_t n, int64_t count, int32_t *inputs, int32_t *labels);

#endif
