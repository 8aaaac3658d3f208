/* block_quantise.h -- floating-point numbers as int8 or int4 codes with a scale per block, as DeepSpeed computes them.
 *
 * A vector of n elements is cut into blocks of `block` elements; the last may be shorter.  With b bits, for each block:
 *   factor f = 2^(b-1) / max |x|, in fp32; 1 if all are zero
 *   code   q = x f, in fp32, rounded to the nearest integer, ties to even, then clamped to -2^(b-1) .. 2^(b-1) - 1
 *   scale  s = 1 / f, in fp32: sent with the codes
 *   value  x' = q s, in fp32, then rounded to the format of the result
 * The largest positive element would need the code 2^(b-1), which does not exist: its error is a whole scale.
 *
 * In memory: all scales (fp32), then the codes block by block; each block starts at a whole byte.  Two 4-bit codes per
 * byte, the earlier in the high half; two's complement.
 *
 * Source    DeepSpeed 0.19.8, csrc/includes/quantization_utils.h (Params<Symmetric>, _chunk) and
 *           dequantization_utils.h: what ZeRO++ runs (G. Wang et al., arXiv:2306.10209, section 3).
 *           golden/quantised.safetensors was made with that code.
 * Differs   - DeepSpeed's kernels read only fp16, and their callers cast weights to fp16 first.  Here other formats use
 *             the same arithmetic on the number in fp32 (fp64 is rounded to fp32 first).
 *           - f is at most 2^126; no fp16 number makes it larger.
 *           - A block with a NaN or an infinity has the scale NaN and is dequantised to NaNs, so that the receiver can
 *             detect an overflow.  DeepSpeed does this only for an infinity; a NaN becomes 0.
 *           - Blocks have any length; DeepSpeed's are multiples of 8.  DeepSpeed chooses their number by the tensor:
 *             for weights pieces of at most 8000 to 16000 elements, for gradients as many groups as the longer side of
 *             the matrix; here it is --quantize-block.
 *           - Codes and scales are sent in one message; DeepSpeed sends them separately.
 * Called    collectives/quantised.c, collectives/quantised_ring.c, collectives/tracking.c and device/generic.c call
 *           these functions.
 *
 * Error     |x - x'| <= s (1 + e) where q is the largest code, s (1/2 + e) elsewhere, e = 2^(b-22): block_add_bounds().
 *           Proof, with u = 2^-24:
 *           - f max|x| <= 2^(b-1) (1 + u).  So v, the rounded x f, is at most 2^(b-1) (1 + u)^2, and differs from the
 *             exact product by at most 2^(b-1) u (1 + u).
 *           - Not clamped, q is within 1/2 of v.  Clamped, v is between 2^(b-1) - 1/2 and 2^(b-1) (1 + u)^2, within
 *             1 + 2^b u of q.
 *           - s = 1/f (1 + d), and q s is rounded once more, both with |d| <= u; |q| <= 2^(b-1).  This adds at most
 *             2^b u (1 + u) s; and 1/f <= s / (1 - u).
 *           - The sum of all these errors is below 2^(b+2) u = e.  A block of zeros (all codes 0, s = 1) is exact.
 * fp64      the bound is for the numbers after rounding to fp32.
 *
 * Quantised collectives and their checks use this file, on the host or through a device's backend.
 */
#ifndef ORRERY_BLOCK_QUANTISE_H
#define ORRERY_BLOCK_QUANTISE_H

#include "ref/numeric/tensor.h"

struct block_format {
    int bits;                   /* 8 or 4 */
    int64_t block;              /* elements that share a scale, >= 1 */
};

/** Bytes of n quantised elements: 4 ceil(n/block) for the scales, plus ceil(bits * length / 8) for each block. */
int64_t block_quantised_bytes(struct block_format, int64_t n);

/**
 * Quantise a tensor of any floating-point format.
 * @param[out] code  block_quantised_bytes() for X's elements, aligned to 4 bytes; does not overlap X.
 */
void block_quantise(void *code, struct tensor X, struct block_format);

/**
 * Y = the values of the codes, rounded to fp32, then to Y's floating-point format.
 * @param code  the result of block_quantise for as many elements as Y has, with the same block_format.
 */
void block_dequantise(struct tensor Y, const void *code, struct block_format);

/** bound[i] += the largest error of element i of n, in fp32; NaN where the scale is NaN. */
void block_add_bounds(double *bound, const void *code, struct block_format, int64_t n);

#endif
