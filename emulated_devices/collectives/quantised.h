/* quantised.h -- collectives whose messages carry codes: blocks of small integers that share a scale, instead of
 * numbers.
 *
 * Codes and scales are those of ref/numeric/block_quantise.h.  A piece of n elements travels as quantised_bytes(): its
 * scales, its codes, and up to 3 bytes of padding, so that the scales of the piece after it are aligned.  Codes are
 * moved by the registered algorithms, as bytes; only what they stand for is added: fp16 in fp16, as DeepSpeed does
 * (quant_reduce.cu), bf16 and fp32 in fp32, fp64 in fp64.
 *
 * Error     |x - x'| <= s/2 for an element x of a block with scale s, each time it is quantised; s where its code is
 *           the largest, which is what the largest positive number of a block gets; and a little for rounding (proven
 *           in block_quantise.h).  For short, below, half a scale stands for all of that.
 *           A sum over P members in one step is therefore off by at most  sum_k s_k/2,  s_k the scale of member k's
 *           block.  In two steps, over q members of each of N nodes and then over the nodes, by at most
 *               sum over nodes (sum over its members s_k/2  +  t_node/2),    t the scale of the node's own sum,
 *           since the node's sum is quantised once more and errors add up.  On a ring the partial sum is quantised at
 *           each of the P - 1 hops, and hop h adds t_h/2, where t_h is the scale of a sum of h members, not of one
 *           member:
 *               sum_{h=1}^{P-1} t_h/2.
 *           An error is about s/sqrt(12) in size, and errors of different members are independent: once, their squares
 *           add up to P s^2/12.  On the ring t_h grows like sqrt(h) where signs are random, and like h where numbers
 *           are of one sign: the sum of squares grows like P^2, or P^3.  `orrery bench quantized` measures it.
 *           Rounding comes besides: with u of the format of sums, m u / (1 - m u) sum |x'| for dequantising and adding
 *           m numbers; 2^-24 (|x'| + 2 s) for each that was fp64, which is rounded to fp32 first; u/(1-u) |sum| where
 *           an fp32 result is stored in bf16.  struct tracking has all of it.
 * Source    G. Wang et al., "ZeRO++: extremely efficient collective communication for giant model training",
 *           arXiv:2306.10209: qwZ, qgZ; DeepSpeed 0.19.8, deepspeed/runtime/comm/coalesced_collectives.py
 *           (all_to_all_quant_reduce), csrc/ quantization/swizzled_quantize.cu, quant_reduce.cu: what goes where in the
 *           two steps, and the order of additions.  DeepSpeed quantises gradients only across nodes, one tensor at a
 *           time, and not vectors; here whole layers, on any group.
 */
#ifndef ORRERY_QUANTISED_H
#define ORRERY_QUANTISED_H

#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/collectives/tracking.h"
#include "ref/numeric/block_quantise.h"

/** The format in which codes' values are added up. */
static inline enum dtype quantised_sum_format(enum dtype t) { return t == F16 ? F16 : dtype_wide(t); }

/** Bytes in which a piece of n elements travels: block_quantised_bytes(), padded to a multiple of 4. */
int64_t quantised_bytes(struct block_format, int64_t n);

/** What gathering a row's pieces of n elements each would make of it, without any messages.  Local.
 * @return OK or ERR_MEMORY. */
enum error_code quantised_as_gathered(struct tensor row, int64_t n, struct block_format, struct error *);

/**
 * All-gather of quantised pieces: what every member has afterwards is what the codes stand for, also of its own piece,
 * so that all have the same bits.
 *
 * Collective over the group.
 * @param algorithm  of an all-gather; it moves bytes.  NULL: the default.
 * @param own        [n] this member's piece; may lie inside `all`, in its place.
 * @param[out] all   [P n] in the same format.  In a group of one it is quantised as well.
 * @return OK; ERR_MEMORY or ERR_COMM on this member alone: the step cannot go on.
 */
enum error_code quantised_allgather(struct group *, const char *algorithm, struct tensor own, struct tensor all,
                                    struct block_format, struct error *);

/** Messages, bytes and additions of this member, exactly.  @param n  elements of one piece. */
struct account quantised_allgather_cost(const struct group *, const char *algorithm, int64_t n, struct block_format);

/* A group, and where it is on several nodes of the cluster with as many members each, side by side, the groups of the
 * two steps; otherwise one step among all. */
struct quantised_group {
    struct group *whole;
    bool two_steps;
    struct group inside, between;       /* members of this one's node; those with its place in all nodes */
};

/** Local; all members make it, in the same order among their groups.
 * @return OK or ERR_MEMORY with nothing to close. */
enum error_code quantised_group_open(struct quantised_group *, struct group *whole, struct error *);
void quantised_group_close(struct quantised_group *);

/**
 * Reduce-scatter of a row of P equal blocks: quantise, all-to-all inside the node, dequantise and add; quantise the
 * sums, all-to-all between the nodes, dequantise and add.  Every block is quantised by itself.  A member's own part is
 * quantised like the others'.
 *
 * Collective over the group.
 * @param row       [P n]; on return this member's block, in its place, has the sum; the others are as they were.
 * @param tracking  beside the row, [P n] each: what is exact and how far the row may be off.  On return, in the
 *     member's
 *                  block, the same of the sum.  .exact NULL: not tracked.  All members track or none; what they tell
 *                  each other of it is counted as CONTROL.
 * Rounding  in the order of members, then of nodes.  The same row gives the same bits.
 * @return OK; ERR_MEMORY or ERR_COMM on this member alone: the step cannot go on.
 */
enum error_code quantised_reduce_scatter(struct quantised_group *, struct tensor row, struct block_format,
                                         struct tracking tracking, struct error *);

/** Messages, bytes and additions of this member, exactly.  @param n  elements of one block. */
struct account quantised_reduce_scatter_cost(const struct quantised_group *, int64_t n, struct block_format);

/**
 * The same on a ring, quantised anew at every hop: worse, and here to be compared with (`orrery bench quantized`).
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
