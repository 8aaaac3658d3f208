/* pages.h -- lesson 24: what pages.c defines.  README.md explains it.
 *
 * A cache has pages of B tokens each, numbered from 0.  A sequence has a table:
 * page table[k] has its tokens k B .. k B + B - 1.  Tokens are numbered from 0.
 * The judge calls these functions through calls.c (`orrery learn`).
 */
#ifndef PAGES_H
#define PAGES_H

#include "course.h"

/** The place of a sequence's token in the cache, counted in tokens from the
 *  first token of page 0.
 *  table: pages of the sequence; B: tokens of a page. */
int64_t place_of(const int32_t *table, int B, int token);

/** The attention of one head for the last token of a sequence of n tokens.
 *  The token at place p of the cache has 2 width numbers, from
 *  cache[2 p width] on: {HALVES: its key, then its value|its value, then its key}.
 *  Token t has the weight exp(s_t) / (exp(s_0) + .. + exp(s_{n-1})) with
 *  s_t = query . key_t / sqrt(width); the scores may be in the hundreds.
 *  @param out  [width] the sum of weight times value over the n tokens. */
void attend(const float *query, const float *cache, const int32_t *table, int B,
            int n, int width, float *out);

/** The pages of the cache with which a new sequence can begin.  The C pages are
 *  full.  tokens[p B + i]: token i of page p; before[p]: the page before it in
 *  the sequence that filled it, -1: page p is the first.  Two pages with the
 *  same tokens have different pages before them.
 *  prompt[n]: the new sequence.  Its pages must have its tokens and stand
 *  behind each other.  Its last token is never among them: its logits are
 *  wanted, so it must be computed.
 *  @param table  the pages found, in order; room for n / B.
 *  @return the number of pages: as many as there are. */
int found_pages(const int32_t *prompt, int n, const int32_t *tokens,
                const int32_t *before, int C, int B, int32_t *table);

/** A sequence ends and uses its pages no longer.
 *  users[p]: sequences that use page p; vacant[count]: pages that nobody uses.
 *  A page that nobody else uses goes behind the others in vacant; the last
 *  page of the sequence first.
 *  @return the number of pages in vacant afterwards. */
int release_pages(const int32_t *table, int pages, int32_t *users,
                  int32_t *vacant, int count);

/** Plan an iteration: how many tokens of which sequence it computes.
 *  Sequences 0 .. n-1 run, in the order in which they began.  length[i]: tokens
 *  of prompt and answer so far; computed[i]: of these, those with keys and
 *  values in the cache; pages[i]: pages that it has.
 *  In turn each sequence takes its tokens that are not computed: at most
 *  {CHUNK: 8|6}, and at most what others have left of `budget`.  It must have
 *  pages for the computed ones and for these, and gets what it lacks of the
 *  *left pages that nobody has.  While these are too few, the last sequence
 *  that runs is preempted: its pages are left, and it has none, nothing
 *  computed, and takes nothing.  That may be the sequence itself: then the
 *  plan is finished.
 *  @param take  [n] tokens of each sequence in the iteration.
 *  @return how many sequences still run. */
int plan_step(int n, const int32_t *length, int32_t *computed, int32_t *pages,
              int32_t *left, int B, int budget, int32_t *take);

#endif
