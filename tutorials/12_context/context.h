/* context.h -- lesson 12: what context.c defines.  README.md explains it.
 *
 * A text of S tokens is shared by W devices, at most 8.  A query of token t
 * sees the keys of tokens 0 .. t: attention is causal.  A query, a key and a
 * value have A numbers each.  The judge calls these functions through calls.c
 * (`orrery learn`).
 */
#ifndef CONTEXT_H
#define CONTEXT_H

#include "course.h"

/* ---- who has which tokens ----------------------------------------------- */

/** How many tokens device r of W has.  {CUT: The text is cut into 2 W chunks,
 *  block_of(S, 2 W, i), and device r has chunks r and 2 W - 1 - r|Tokens are
 *  dealt like cards: device r has r, r + W, r + 2 W, ..}. */
int64_t tokens_of(int64_t S, int W, int r);

/** Which token of the text device r's number i is; they are in the order of
 *  the text. */
int64_t token_of(int64_t S, int W, int r, int64_t i);

/* ---- attention, some keys at a time ------------------------------------- */

/* For each query, of all keys that it has met so far: the largest score; the
 * sum of exp(score - max); and the sum of exp(score - max) times the value, A
 * numbers.  Without any key: -INFINITY, 0, and zeros. */
struct sofar { float *max, *sum, *out; };

/** The queries of device r meet the keys of device s, with their values.  The
 *  score of a query and a key is their product, divided by sqrt(A).  Rows of
 *  q, k, v and so->out have A numbers, and begin `stride` numbers after one
 *  another.  On the clock: work(4.0 * A * pairs, 0), pairs being the number of
 *  queries and keys that see each other.  Allocates nothing. */
void attend(int64_t S, int W, int r, int s, const float *q, const float *k,
            const float *v, int64_t A, int64_t stride, struct sofar *so);

/* ---- a ring ------------------------------------------------------------- */

/** Attention with one head: out, for this device's queries.  q, k, v and out
 *  have this device's tokens, A numbers each.  Keys and values go round: W
 *  times a device computes with those that it has, while it passes them on to
 *  device {RING: r + 1|r - 1} and receives others, keys and values in messages
 *  of their own: 2 (W-1) messages.  Allocates at most 4 R A + 2 n numbers,
 *  where n is the number of this device's tokens, and R = 2 ceil(S / 2 W), as
 *  many as any device has. */
void ring_attention(const struct group *, const float *q, const float *k,
                    const float *v, int64_t S, int64_t A, float *out);

/* ---- tokens for heads --------------------------------------------------- */

/** Attention with several heads.  Here device r has the tokens of block_of(S,
 *  W, r); q, k, v and out have a row for each, with `heads` times A numbers.
 *  The devices exchange tokens for heads: device r computes the heads of
 *  block_of(heads, W, r), for all tokens, and the results go back.  Four
 *  all_to_all, for q, k, v and out; no other messages.  Allocates at most 4 S
 *  own A + n heads A + 2 S numbers, for n tokens and `own` heads of this
 *  device. */
void ulysses_attention(const struct group *, const float *q, const float *k,
                       const float *v, int64_t S, int64_t heads, int64_t A,
                       float *out);

#endif
