/* window.h -- TPI-LLM's sliding window of weights, and its division of heads.
 *
 * A device computes blocks, attention and feed-forward in turn, whose weights are on a slow tier.  A loader brings them
 * in order; at most `window` blocks are in memory, the one that is computed among them.  A block leaves when it is
 * computed, and makes room for the next that is not there.  The peak is the largest sum of `window` blocks in a row.
 *
 * Key heads are divided by ratios of the devices: each gets the whole part of its share, and the heads that are left go
 * to the last devices, one each.  Query heads follow their key head.
 *
 * Source  Z. Li et al., "TPI-LLM: serving 70B-scale LLMs efficiently on low-resource edge devices", arXiv:2410.00531;
 *         Lizonghang/TPI-LLM, mem_manager.py and split.py.
 *
 * window_claims.c and tests call these functions.  The code is pure.
 */
#ifndef ORRERY_WINDOW_H
#define ORRERY_WINDOW_H

#include "ref/error.h"
#include <stdint.h>

struct window_result { int64_t peak, loaded; double seconds; };         /* bytes in memory, at most; bytes loaded */

/**
 * Pass once through blocks.
 * @param bytes    [blocks] of each.
 * @param compute  [blocks] seconds of each.
 * @param rate     bytes a second of the slow tier.
 * @return OK; ERR_MEMORY.
 */
enum error_code window_pass(const int64_t *bytes, const double *compute, int blocks, int window, double rate,
                            struct window_result *, struct error *);

/** The peak by the formula. */
int64_t window_peak(const int64_t *bytes, int blocks, int window);

/** Divide key heads.  @param ratio  [devices] parts of the whole, together 1.  @param[out] heads  [devices] */
void window_heads(int all, const double *ratio, int devices, int *heads);

#endif
