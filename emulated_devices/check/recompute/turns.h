/* turns.h -- how a batch, heads or columns are cut into parts, and what a part has if parts take turns.  Inside
 * check/ only.
 * recompute/mask.c and the files of mistakes/ ask it where a part begins. */
#ifndef ORRERY_SINGLE_TURNS_H
#define ORRERY_SINGLE_TURNS_H

#include <stdint.h>

/** Where part k of n begins; the first parts have one more if n does not divide. */
static inline int64_t part_begin(int64_t n, int parts, int k)
{
    return n / parts * k + (k < n % parts ? k : n % parts);
}

/** The part that i is in. */
static inline int part_with(int64_t n, int parts, int64_t i)
{
    int k = 0;
    while (part_begin(n, parts, k + 1) <= i) k++;
    return k;
}

/** The element that is read in the place of i, if each part reads from where the part `by` further begins, on to its
 * own length. */
static inline int64_t part_turned(int64_t n, int parts, int by, int64_t i)
{
    const int own = part_with(n, parts, i), other = ((own + by) % parts + parts) % parts;
    return (part_begin(n, parts, other) + i - part_begin(n, parts, own)) % n;
}

#endif
