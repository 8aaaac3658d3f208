/* exact_bins.h -- squares of fp32 numbers that were added up elsewhere without rounding, by their exponents.
 *
 * exact_sum.c and the CUDA backend include this file.  No function returns an error code.
 */
#ifndef ORRERY_EXACT_BINS_H
#define ORRERY_EXACT_BINS_H

#include "ref/numeric/exact_sum.h"

enum { EXACT_BINS = 256 };              /* exponents of fp32; the last is that of infinities and NaNs */

/** s += the sum over exponents e of (low[e] + 2^32 high[e]) 2^(2 max(e, 1) - 300): a number is its fraction of 24 bits
 *  times 2^(max(e, 1) - 150).  @param low,high  shape [EXACT_BINS], below 2^63 each; the last bin is not read. */
void exact_add_bins(struct exact_sum *exact_sum, const uint64_t *low, const uint64_t *high);

#endif
