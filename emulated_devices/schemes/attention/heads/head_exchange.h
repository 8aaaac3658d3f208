/* head_exchange.h -- tokens exchanged for heads: some devices have different tokens of all heads, and then all their
 * tokens of different heads.
 *
 * Callers: two_dimensional.c and planned/flexsp.c.  A gather puts qkv or the output's gradient into heads; the way back
 * brings results or d_qkv home.  Both exchanges are one all-to-all, and every member of the group has to call them.
 */
#ifndef ORRERY_HEAD_EXCHANGE_H
#define ORRERY_HEAD_EXCHANGE_H

#include "emulated_devices/schemes/attention/attention.h"

struct head_exchange {
    const struct tensor_parallel *tp;   /* says which heads these devices have together */
    const struct heads *heads;          /* those that all these devices have before */
    struct group *group;                /* NULL if only extents are needed */
    int devices, rank;                  /* members of the exchange; this device's place */
    int64_t tokens;                     /* of a sequence, on all these devices together: the i-th device has the i-th of
                                         * nearly equal ranges of them */
};

/** A member's heads after the exchange, counted from the first of all. */
struct heads head_exchange_heads(const struct head_exchange *, int member);

/** Columns of a member's heads.  fused: queries, keys and values; else queries. */
int64_t head_exchange_width(const struct head_exchange *, int member, bool fused);

/** The sequences that `rows` rows of this device, before the exchange, are parts of. */
int64_t head_exchange_sequences(const struct head_exchange *, int64_t rows);

/** This device's part of a vector with one number for each head; none if there is none. */
struct tensor head_exchange_sinks(const struct head_exchange *, struct tensor all);

/** Attention over this device's heads: those of `all`, with the numbers of heads, sinks and the dropout of its own. */
struct attention head_exchange_shape(const struct head_exchange *, struct attention all);

/**
 * Exchange this device's tokens of all heads for all tokens of its heads.
 * Collective over the group.
 * @param mine         [B n, width of all heads]: n tokens of this device, in each of B sequences.
 * @param[out] theirs  [B tokens, head_exchange_width].
 * @param fused        as in head_exchange_width.
 * @return OK, ERR_MEMORY or ERR_COMM; after an error the step cannot go on.
 */
enum error_code head_exchange_gather(const struct head_exchange *, struct tensor mine, struct tensor theirs, bool fused,
                                     struct error *);

/**
 * The way back.
 * Collective over the group.
 * @param[out] mine  what all members send for its heads.  With more members than key/value heads several send copies of
 *                   one: their sum, in the order of members.
 * @param theirs, fused  as above.
 * @return as above.
 */
enum error_code head_exchange_back(const struct head_exchange *, struct tensor mine, struct tensor theirs, bool fused,
                                   struct error *);

/** Memory [rows, cols] for gradients of this device's heads: EXACT, if several devices have copies of a key/value head
 *  and sums are exact, because the parts of these are added before they round.  data: NULL without memory. */
struct tensor head_exchange_sums(const struct head_exchange *, int64_t rows, int64_t cols);

/**
 * The way back of such gradients: d_qkv = what all members send, rounded once if d_qkv is not EXACT.
 * Collective over the group.
 * @return as head_exchange_back.
 */
enum error_code head_exchange_gradients(const struct head_exchange *, struct tensor d_qkv, struct tensor theirs,
                                        struct error *);

/** Enter what one exchange of B sequences sends.  gather: or the way back; the second one: the way of gradients. */
void head_exchange_cost(struct forecast *, const struct head_exchange *, int64_t B, bool fused, bool gather);
void head_exchange_gradients_cost(struct forecast *, const struct head_exchange *, int64_t B);

#endif
