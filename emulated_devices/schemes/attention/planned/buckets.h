/* buckets.h -- many lengths as few: each is taken as long as the longest of its bucket.
 *
 * Source   FlexSP, arXiv:2412.01523, section 4.1.3: the buckets for which the sum of what is added is least, by
 *          dynamic programming; the paper plans with 16
 * Errors   none
 *
 *     lengths   90 85 40 12 11 10 2        three buckets: 90 85 | 40 | 12 11 10 2       added 5 + 0 + 13
 *
 * flexsp_plan.c calls this function once for each plan.
 */
#ifndef ORRERY_ATTENTION_BUCKETS_H
#define ORRERY_ATTENTION_BUCKETS_H

#include <stdint.h>

enum { USUAL_BUCKETS = 16 };

/**
 * The best buckets.  Pure.
 * @param[out] bucketed  [n] the longest of each one's bucket.
 * @param length         [n] descending.
 * @param most           buckets, at least 1.
 * @return the sum of what is added; -1 without memory.
 */
int64_t bucket_lengths(int64_t bucketed[], const int64_t length[], int n, int most);

#endif
