/* attention_parts.h -- attention of some queries with some keys: where the rows and heads of a call lie.
 *
 * ref/ops/attention.c and ref/exact/attention.c, which has the same operations with exact sums, call these functions.
 * No function returns an error code.
 */
#ifndef ORRERY_ATTENTION_PARTS_H
#define ORRERY_ATTENTION_PARTS_H

#include "ref/ops/attention_rows.h"

/* Queries of some tokens, keys and values of some: all of a sequence's, or a part of each. */
struct part {
    struct tensor Q, KV;                /* [B queries, >= H A], [B keys, >= first + K A] */
    struct tensor q_at, k_at;           /* I32 positions of the rows of each sequence, or tensor_none */
    struct attention a;                 /* of the call */
    int64_t queries, keys, B;           /* rows of a sequence; sequences */
    int64_t first;                      /* column of KV with the first key */
};

/* Queries are the first columns of Q, keys and values the last of KV.  Without positions row i has position i. */
struct part FN(attention_parts_of)(struct tensor Q, struct tensor KV, struct tensor q_at, struct tensor k_at,
                                   struct attention a);

/* A call with keys alone, which are columns of K from `first` on. */
struct part FN(attention_parts_with_keys)(struct tensor Q, struct tensor K, int64_t first, struct tensor q_at,
                                          struct tensor k_at, struct attention a);

/* All tokens of whole sequences. */
struct part FN(attention_parts_whole)(struct tensor QKV, struct attention a);

/* Head h of sequence b. */
struct head FN(attention_parts_head)(const struct part *p, int64_t b, int64_t h);

/* Without threads here, products must be too small for the BLAS to start its own threads: it would split the sums in
 * another way, and the bits would differ. */
bool FN(attention_parts_many)(int64_t B, const struct attention *a, int64_t queries, int64_t keys);

/* top [B,H,queries] = the largest of each query's scores and its sink; more: and of what is there. */
void FN(attention_parts_top)(struct tensor top, const struct part *p, bool more);

/* D of a head's queries q0.., at most TILE: of delta, or computed from the output. */
void FN(attention_parts_delta)(real *D, struct tensor delta, struct tensor dO, struct tensor O, const struct part *p,
                               int64_t b, int64_t h, int64_t q0);

#endif
