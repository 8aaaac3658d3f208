/* block_quantise.h -- floating-point numbers as small integers that share a scale, block by block: int8 and int4.
 *
 * A vector of n elements is cut into blocks of `block` elements, the last one shorter.  Of each block
 *   scale s = max |x| / Q, rounded to fp32, but at least 2^-126;   Q = 127 for 8 bits, 7 for 4: symmetric, -Q-1 is not used
 *   code  q = x / s rounded to the nearest integer, ties to even
 *   value x' = q s
 * In memory: all scales (fp32), then the codes of block after block, each block from a whole byte on; two 4-bit codes a byte,
 * the earlier in the low half; two's complement.
 *
 * Error     |x - q s| <= s/2, whatever is in the block.  Proof: x and s are fp32 numbers, so their quotient, if it is no tie
 *           (an integer and a half), is at least 2^-27 away from all ties below 128, far more than the 2^-46 by which a
 *           division in double can move it: q is the integer nearest to x/s itself.  And no code is beyond Q: s is at
 *           least max|x|/Q (1 - 2^-24), so |x/s| <= Q (1 + 2^-23) < Q + 1/2.  The product q s has at most 31 bits: it is
 *           exact in double and is rounded once, to the format of the result (to fp32: by at most 2^-24 |q s| more).
 *           A scale below 2^-126 would be subnormal and inexact; blocks so small take 2^-126, and the bound holds.
 * Zeros     a block of zeros has the scale 2^-126 like any other small one, and comes back as zeros.
 * NaN       a block with a NaN or an infinity in it has the scale NaN and comes back as NaNs: nothing is hidden, and an
 *           overflow can still be found on the other side.
 * fp64      is rounded to fp32 first; the bound is for the rounded numbers.
 * Source    G. Wang et al., "ZeRO++: extremely efficient collective communication for giant model training",
 *           arXiv:2306.10209, section 3 (quantisation in blocks); T. Dettmers et al., "8-bit optimizers via block-wise
 *           quantization", arXiv:2110.02861
 */
#ifndef ORRERY_BLOCK_QUANTISE_H
#define ORRERY_BLOCK_QUANTISE_H

#include "ref/numeric/tensor.h"

struct block_format {
    int bits;                   /* 8 or 4 */
    int64_t block;              /* elements that share a scale, >= 1 */
};

/** Bytes of n quantised elements, scales included: 4 ceil(n/block), and ceil(bits length / 8) for each block. */
int64_t block_quantised_bytes(struct block_format, int64_t n);

/**
 * Quantise a tensor of any floating-point format.
 * @param[out] code  block_quantised_bytes() for X's elements, aligned to 4 bytes; does not overlap X.
 */
void block_quantise(void *code, struct tensor X, struct block_format);

/**
 * Y = what the code stands for, in Y's floating-point format, rounded once.
 * @param code  as block_quantise left it for as many elements as Y has, in the same format.
 */
void block_dequantise(struct tensor Y, const void *code, struct block_format);

#endif
