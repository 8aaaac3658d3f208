/* block_quantise.h -- floating-point numbers as small integers that share a scale, block by block: DeepSpeed's int8 and
 * int4.
 *
 * A vector of n elements is cut into blocks of `block` elements, the last one shorter.  With b bits, of each block
 *   factor f = 2^(b-1) / max |x|, in fp32; 1 if all are zero
 *   code   q = x f, in fp32, rounded to the nearest integer, ties to even, then clamped to -2^(b-1) .. 2^(b-1) - 1
 *   scale  s = 1 / f, in fp32: what is sent
 *   value  x' = q s, in fp32, then rounded to the format of the result
 * The largest positive element would be 2^(b-1), which no code is: it loses a whole scale.
 *
 * In memory: all scales (fp32), then the codes of block after block, each block from a whole byte on; two 4-bit codes a
 * byte, the earlier in the high half; two's complement.
 *
 * Source    DeepSpeed 0.19.8, csrc/includes/quantization_utils.h (Params<Symmetric>, _chunk) and
 *           dequantization_utils.h: what ZeRO++ runs (G. Wang et al., arXiv:2306.10209, section 3).
 *           golden/quantised.safetensors was made with that code.
 * Beyond it DeepSpeed's kernels read fp16 alone, and what calls them casts weights to fp16 first.  Other formats take
 * the same arithmetic
 *           here, from the number in fp32 (fp64 is rounded to it).  Where f would be above 2^126, which no fp16 number
 *           can cause, it is 2^126.  A block with a NaN or an infinity has the scale NaN and comes back as NaNs, so
 *           that an overflow can be found on the other side; DeepSpeed's comes back as NaNs only for an infinity, a NaN
 *           becomes 0.  Blocks of any length; DeepSpeed's are multiples of 8.  It chooses their number by the tensor:
 *           for weights pieces of at most 8000 to 16000 elements, for gradients as many groups as the longer side of
 *           the matrix; here that is --quantize-block.  It sends codes and scales apart; here they go in one message.
 *
 * Error     |x - x'| <= s (1 + e) where q is the largest code, s (1/2 + e) elsewhere, e = 2^(b-22): block_add_bounds().
 *           Proof, u = 2^-24: f max|x| is at most 2^(b-1) (1 + u), so the rounded x f, call it v, is at most 2^(b-1) (1
 *           + u)^2 and off from the exact product by at most 2^(b-1) u (1 + u).  Rounded to an integer and not clamped,
 *           q is within 1/2 of v.  Clamped, v is between 2^(b-1) - 1/2 and 2^(b-1) (1 + u)^2: within 1 + 2^b u of q.  s
 *           is 1/f (1 + d), q s is rounded once more, both |d| <= u and |q| <= 2^(b-1), which adds at most 2^b u (1 +
 *           u) s; and 1/f <= s / (1 - u).  All of it together is below 2^(b+2) u = e.  A block of zeros, of which all
 *           codes are 0 and s is 1, is exact.
 * fp64      the bound is for the numbers rounded to fp32.
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
 * Y = what the code stands for, in Y's floating-point format: rounded to fp32, then to that.
 * @param code  as block_quantise left it for as many elements as Y has, in the same format.
 */
void block_dequantise(struct tensor Y, const void *code, struct block_format);

/** bound[i] += how far element i of n may be from what its code stands for, in fp32; NaN where the scale is. */
void block_add_bounds(double *bound, const void *code, struct block_format, int64_t n);

#endif
