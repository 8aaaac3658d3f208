/* philox.h -- computes random numbers from a counter (Philox).
 *
 * Number i of tensor T is a pure function of (seed, T, i): no state, no order.  A device draws only the elements of its
 * shard, so the same seed gives the same model and the same dropout masks on every mesh.
 *
 * Source  J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11,
 *         doi:10.1145/2063384.2063405; tested with the known-answer vectors of the authors' Random123 library.
 * Called  Files of ref/model/, bench/, schemes/, verify/ and other rooms call these functions.  No function returns
 *         an error code.
 */
#ifndef ORRERY_PHILOX_H
#define ORRERY_PHILOX_H

#include <stdint.h>

/** Philox4x32-10: four random words from a counter and a key. */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/** The random stream of a tensor: FNV-1a of its name, so it does not depend on any numbering. */
uint64_t random_stream(const char *tensor_name);

/** All four words of n consecutive Philox blocks, vectorised: w[4 i + k] is word k of block first + i. */
void random_words(uint32_t *w, int64_t n, uint64_t seed, uint64_t stream, uint64_t first);

/** Word 0 of the Philox block at (seed, stream, index), as a number in [0, 1) with 24 bits: exact in fp32. */
double random_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/** Draw n uniform numbers at consecutive indices, vectorised: x[i] = random_uniform(seed, stream, first + i). */
void random_uniforms(float *x, int64_t n, uint64_t seed, uint64_t stream, uint64_t first);

/**
 * An approximately normal number of mean 0 and variance 1.
 *
 * The sum of the block's eight 16-bit halves, centred and scaled (Irwin-Hall, n = 8): |x| < 4.9, excess kurtosis
 * -0.15.  It needs only integer arithmetic and one multiplication, so the bits are the same on every machine and in
 * every language; logarithms and cosines do not guarantee that.
 */
double random_normal(uint64_t seed, uint64_t stream, uint64_t index);

/** Draw n normal numbers at consecutive indices, vectorised: x[i] = random_normal(seed, stream, first + i). */
void random_normals(double *x, int64_t n, uint64_t seed, uint64_t stream, uint64_t first);

#endif
