/* lengths.h -- lengths of samples with a long tail, for tests of attention schemes that plan by lengths.  Tests in
 * tests/devices/ call these functions.  No function returns an error code. */
#ifndef TESTS_LENGTHS_H
#define TESTS_LENGTHS_H

#include "ref/numeric/philox.h"
#include <math.h>
#include <stdint.h>

enum { MOST_LENGTHS = 4096 };

/** Log-normal lengths, of median 48, as many as fill `tokens`.
 *  @param[out] length  room for MOST_LENGTHS.  @return how many. */
static inline int lognormal(int64_t length[], int64_t tokens, uint64_t seed)
{
    double normal[MOST_LENGTHS];
    int n = 0;
    random_normals(normal, MOST_LENGTHS, seed, 1, 0);
    for (int64_t left = tokens; left > 0; left -= length[n++]) {
        const int64_t s = (int64_t)(48 * exp(1.2 * normal[n]));
        length[n] = s < 1 ? 1 : s > left ? left : s;
    }
    return n;
}

#endif
