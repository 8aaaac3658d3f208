/* quantised.h -- collectives whose messages carry codes: blocks of small integers with one scale per block.
 *
 * Codes and scales are those of ref/numeric/block_quantise.h.  A piece of n elements is sent as quantised_bytes(): its
 * scales, its codes, and up to 3 bytes of padding, so that the scales of the next piece are aligned.  The registered
 * algorithms move codes as bytes.  Sums are made of the dequantised values: fp16 in fp16, as in DeepSpeed
 * (quant_reduce.cu), bf16 and fp32 in fp32, fp64 in fp64.
 *
 * Error     |x - x'| <= s/2 for an element x of a block with scale s, each time it is quantised; s if its code is the
 *           largest, as for the largest positive number of a block; plus a small rounding error (proof in
 *           block_quantise.h).  Below, half a scale stands for all of that.
 *           - One step: the error of a sum over P members is at most  sum_k s_k/2,  s_k the scale of member k's block.
 *           - Two steps, over the members of each node and then over the nodes: the node's sum is quantised once more,
 *             so the error is at most
 *               sum over nodes (sum over its members s_k/2  +  t_node/2),    t the scale of the node's own sum.
 *           - Ring: the partial sum is quantised at each of the P - 1 hops.  Hop h adds t_h/2, where t_h is the scale
 *             of a sum of h members:
 *               sum_{h=1}^{P-1} t_h/2.
 *           - Typical size: one error is about s/sqrt(12), and errors of different members are independent.  In one
 *             step their squares sum to P s^2/12.  On the ring t_h grows like sqrt(h) for random signs and like h for
 *             equal signs, so the sum of squares grows like P^2 or P^3.  `orrery bench quantized` measures it.
 *           - Rounding is added to all of these: m u / (1 - m u) sum |x'| for dequantising and adding m numbers, u of
 *             the format of sums; 2^-24 (|x'| + 2 s) for each fp64 number, which is rounded to fp32 first; u/(1-u)
 *             |sum| where an fp32 result is stored in bf16.  struct tracking includes all of it.
 * Source    G. Wang et al., "ZeRO++: extremely efficient collective communication for giant model training",
 *           arXiv:2306.10209: qwZ, qgZ; DeepSpeed 0.19.8, deepspeed/runtime/comm/coalesced_collectives.py
 *           (all_to_all_quant_reduce), csrc/quantization/swizzled_quantize.cu, quant_reduce.cu: the messages of the two
 *           steps and the order of additions.  DeepSpeed quantises gradients only across nodes, one tensor at a time,
 *           and not vectors; here whole layers are quantised, on any group.
 * Called    bench/schemes/quantized.c, quantised_ring.c, schemes/data/stages/codes.c and
 *           schemes/data/stages/sharing.c call these functions.
 */
#ifndef ORRERY_QUANTISED_H
#define ORRERY_QUANTISED_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/collectives/tracking.h"
#include "ref/numeric/block_quantise.h"

/** The format in which dequantised values are added. */
static inline enum dtype quantised_sum_format(enum dtype dtype) { return dtype == F16 ? F16 : dtype_wide(dtype); }

/** Bytes of a piece of n elements in a message: block_quantised_bytes(), padded to a multiple of 4. */
int64_t quantised_bytes(struct block_format, int64_t n);

/** Quantise a piece for a message: its codes, and zeros as padding.  Local.  @param[out] code  quantised_bytes(). */
void quantised_encode(struct device *, char *code, struct tensor piece, struct block_format);

/** Quantise and dequantise a row in pieces of n elements, as an all-gather would, without messages.  Local; uncharged.
 *  If the device is NULL, the row must be the host's.  @return OK or ERR_MEMORY. */
enum error_code quantised_as_gathered(struct device *, struct tensor row, int64_t n, struct block_format,
                                      struct error *);

/**
 * All-gather of quantised pieces.  Every member gets the dequantised values, also of its own piece, so all members have
 * the same bits.
 *
 * Collective over the group.
 * @param algorithm  of an all-gather of bytes; NULL: the default.
 * @param own        [n] this member's piece; may be at its place inside `all`.
 * @param[out] all   [P n] in the same format; also quantised in a group of one.
 * @return OK; ERR_MEMORY or ERR_COMM on this member alone: the step cannot go on.
 */
enum error_code quantised_allgather(struct group *, const char *algorithm, struct tensor own, struct tensor all,
                                    struct block_format, struct error *);

/** Exact messages, bytes and additions of this member; n: elements of one piece. */
struct account quantised_allgather_cost(const struct group *, const char *algorithm, int64_t n, struct block_format);

/* A group.  If it is on several nodes with equally many members of consecutive ranks, also the groups of the two steps;
 * otherwise there is one step among all members. */
struct quantised_group {
    struct group *whole;                /* all members */
    bool two_steps;                     /* first inside nodes, then between them */
    struct group inside, between;       /* members of this node; members with this place in all nodes */
};

/** Local; all members call it, in the same order relative to their other groups.
 *  @return OK or ERR_MEMORY with nothing to close. */
enum error_code quantised_group_open(struct quantised_group *, struct group *whole, struct error *);
void quantised_group_close(struct quantised_group *);

/**
 * Reduce-scatter of a row of P equal blocks: quantise, all-to-all inside the node, dequantise and add; quantise the
 * sums, all-to-all between the nodes, dequantise and add.  Every block is quantised separately, also a member's own.
 *
 * Collective over the group.
 * @param row       [P n]; on return this member's block is the sum; the other blocks do not change.
 * @param tracking  [P n] each: the exact values and the error bounds of the row; on return, in this member's block,
 *                  those of the sum.  .exact NULL: not tracked.  All members track or none; its messages are CONTROL.
 * Rounding  in the order of members, then of nodes.  The same row gives the same bits.
 * @return OK; ERR_MEMORY or ERR_COMM on this member alone: the step cannot go on.
 */
enum error_code quantised_reduce_scatter(struct quantised_group *, struct tensor row, struct block_format,
                                         struct tracking tracking, struct error *);

/** Messages, bytes and additions of this member, exactly.  @param n  elements of one block. */
struct account quantised_reduce_scatter_cost(const struct quantised_group *, int64_t n, struct block_format);

/**
 * The same on a ring, quantised again at every hop: less exact; only for comparison (`orrery bench quantized`).
 * Collective over the group; arguments and errors as quantised_reduce_scatter.
 */
enum error_code quantised_ring_reduce_scatter(struct group *, struct tensor row, struct block_format, struct tracking,
                                              struct error *);
struct account quantised_ring_reduce_scatter_cost(const struct group *, int64_t n, struct block_format);

/* Block i of a row of blocks of n elements. */
static inline struct tensor quantised_block(struct tensor row, int64_t n, int64_t i)
{
    return tensor_1d((char *)row.data + (size_t)(i * n) * dtype_size(row.dtype), row.dtype, n);
}

#endif
