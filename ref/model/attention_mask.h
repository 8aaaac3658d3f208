/* attention_mask.h -- masks of attention by name: which tokens of its sample a token sees, itself and earlier ones.
 *
 * A mask is one function of a sample's length and a token's place: up to two ranges of places, first and end, disjoint
 * and ascending.  Operations, schemes and plans read such ranges, and know no mask by name.  `causal` has one range.
 *
 *     causal                  all tokens up to itself
 *     lambda:SINKS,WINDOW     the first SINKS tokens, and the last WINDOW up to itself
 *     shared-question:ANSWERS,PART
 *                             a question, PART of the sample, then ANSWERS answers: a token of an answer sees the
 *                             question and its own answer, never another answer
 *     blockwise:TOKENS,BLOCKS blocks of TOKENS: a token of the last block sees all up to itself; another token sees
 *                             the first block, itself and the BLOCKS x TOKENS tokens before it
 *
 * Source: C. Jiang et al., "DCP", arXiv:2510.10620; dcp/runtime/flash_attention/utils.py of chenyu-jiang/dcp, whose
 * default numbers these are.
 * sample_mask.c, plan/context.c, model/stage.c and run/words/take.c call these functions.
 */
#ifndef ORRERY_ATTENTION_MASK_H
#define ORRERY_ATTENTION_MASK_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

struct attention_mask;          /* config.h */

enum attention_mask_kind {
    ATTENTION_CAUSAL, ATTENTION_LAMBDA, ATTENTION_SHARED_QUESTION, ATTENTION_BLOCKWISE, ATTENTION_MASKS
};
enum { ATTENTION_MASK_RANGES = 2 };

/** Read NAME or NAME:FIRST,SECOND; without numbers those of the released code.
 *  @return OK; ERR_USAGE, naming --mask and what is wrong, also if a token would see no key. */
enum error_code attention_mask_parse(struct attention_mask *, const char *text, struct error *);

/** A mask as it is typed, with both numbers. */
struct attention_mask_text { char text[64]; } attention_mask_text(const struct attention_mask *);

/** Whether a mask is the usual one, with which operations need no ranges. */
bool attention_mask_is_causal(const struct attention_mask *);

/** The number of ranges of each token. */
int attention_mask_ranges(const struct attention_mask *);

/**
 * The ranges that each token of a sample sees.  Pure.
 * @param first       what is added to all places: the position of the sample's first token.
 * @param n           tokens of the sample.
 * @param[out] sees   int32 [n, ranges, 2].
 */
void attention_mask_fill(const struct attention_mask *, int64_t first, int64_t n, int32_t *sees);

/** Pairs of a token of a sample of n and a token that it sees. */
double attention_mask_pairs(const struct attention_mask *, int64_t n);

#endif
