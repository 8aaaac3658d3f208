/* attention_rows.h -- attention of a tile of queries, of one head, with all keys of a call, tile of keys by tile of
 * keys.
 *
 * Rows of queries and keys have positions in their sequence, ascending; what a query sees depends on positions alone.
 * A tile of keys that no query of the tile sees is not computed.  attention.c and attention_scores.c call these
 * functions.  No function returns an error code.
 */
#ifndef ORRERY_ATTENTION_ROWS_H
#define ORRERY_ATTENTION_ROWS_H

#include "ref/ops/real.h"

enum { TILE = 64 };

/* Tokens of a sequence, as dropout numbers them. */
static inline int64_t attention_each(const struct attention *attention)
{
    return attention->each > 0 ? attention->each : attention->S;
}

/* One query head of one sequence. */
struct head {
    const real *q, *k, *v;              /* row 0 of its queries, keys and values */
    int64_t ld_q, ld_kv;                /* distances of rows */
    int64_t queries, keys;              /* numbers of rows */
    const int32_t *q_at, *k_at;         /* positions of the rows; NULL: row i has position i */
    const int32_t *mask;                /* ranges of keys that the query at position 0 sees; NULL: causal */
    int64_t ranges;                     /* of each position, in the mask */
    int64_t window;                     /* positions up to a query's own, of which it sees keys; 0: all */
    int64_t drop_row;                   /* of position 0, in the matrix of probabilities of the whole model */
    real sink;                          /* the logit of its sink; -infinity: it has none */
};

/* Return what the mask and dropout need of head h of sequence b. */
static inline struct head head_places(const struct attention *attention, struct tensor q_at, int64_t b, int64_t h)
{
    const int64_t ranges = tensor_cols(attention->mask) / 2, masked = tensor_rows(attention->mask) == attention->S ? 0
        : b * attention->S;
    return (struct head){ .q_at = q_at.data, .ranges = ranges,              /* a mask for all sequences, or for each */
                          .window = attention->window,
                          .sink = tensor_present(attention->sinks) ? CONST_DATA(attention->sinks)[h] : -(real)INFINITY,
                          .mask = tensor_present(attention->mask)
                              ? (const int32_t *)attention->mask.data + 2 * ranges * masked : NULL,
                          .drop_row = ((attention->drop.row0 + b) * attention->drop.cols + attention->drop.col0 + h)
                              * attention_each(attention) };
}

/* Row 0 of a head's gradients. */
struct FN(head_gradients) {
    real *dq, *dk, *dv;
    int64_t ld_dq, ld_dkv;
};

/* tile [rows, TILE] = the scores of queries q0.. and keys k0.., capped, and -infinity for what is not seen.
 * @return whether a query sees a key; if not, the tile is not written. */
bool FN(attention_rows_score)(real *tile, const struct head *, const struct attention *, int64_t q0, int64_t rows,
                              int64_t k0, int64_t cols);

/* p [rows, TILE] = the probabilities, without dropout, and ds = the gradients of the scores.  d_o, lse and D begin at
 * query q0.  @return as above. */
bool FN(attention_rows_differentiate)(real *p, real *ds, const real *d_o, int64_t ld_o, const real *lse, const real *D,
                                      const struct head *, const struct attention *, int64_t q0, int64_t rows,
                                      int64_t k0, int64_t cols);

/* Raise the tops of queries q0.. to the largest of their scores and of the sink.  top points to the head's row 0. */
void FN(attention_rows_top)(real *top, const struct head *, const struct attention *, int64_t q0);

/* Add what queries q0.. see: exp(score - top) to total, and times dropout's factor and the value to o. */
void FN(attention_rows_sum)(real *o, int64_t ld_o, real *total, const real *top, const struct head *,
                            const struct attention *, int64_t q0);

/* Queries q0.. of a head, a tile of them: o and lse point to its row 0.  A query that sees no key has o = 0 and lse =
 * -infinity, or the sink. */
void FN(attention_rows_forward)(real *o, int64_t ld_o, real *lse, const struct head *, const struct attention *,
                                int64_t q0);

/* Adds to the gradients what queries q0.. contribute.  d_o and lse point to the head's row 0; D = d_o . o of these
 * rows. */
void FN(attention_rows_backward)(struct FN(head_gradients), const real *d_o, int64_t ld_o, const real *lse,
                                 const real *D, const struct head *, const struct attention *, int64_t q0);

/* Multiply x [rows, cols], rows `ld` apart, by the dropout factors of queries q0.. and keys k0.., at most TILE. */
void FN(attention_drop)(real *x, int64_t ld, const struct head *, const struct attention *, int64_t q0, int64_t rows,
                        int64_t k0, int64_t cols);

/* x [S]: a query's scores with the tokens of its sequence.  On return their softmax over those that the query sees, 0
 * for others, and 0 for all if it sees none.  @return the logarithm of the sum of their exponentials. */
real FN(attention_row_softmax)(real *x, const struct head *, const struct attention *, int64_t query);

#endif
