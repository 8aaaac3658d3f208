/* permutation.c -- item i of a permutation of 0 .. n - 1 that seed, stream and number decide.
 *
 * text/corpus.c and ref/model/load.c call this file.  No function here can fail; an i outside is a mistake that
 * assert() finds.
 */
#include "ref/numeric/permutation.h"
#include "ref/numeric/philox.h"
#include <assert.h>

enum { ROUNDS = 4 };

/* A permutation of numbers of 2 half bits, whatever the round function is. */
static uint64_t permute(uint64_t x, int half, const uint32_t key[2], uint64_t number)
{
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        /* A Feistel round: left and right change places, and one is mixed with a random function of the other. */
        const uint32_t counter[4] = { (uint32_t)right, round, (uint32_t)number, (uint32_t)(number >> 32) };
        uint32_t w[4];
        philox4x32(counter, key, w);
        const uint64_t next = left ^ (w[0] & mask);
        left = right, right = next;
    }
    return left << half | right;
}

int64_t permutation_item(int64_t i, int64_t n, uint64_t seed, uint64_t stream, uint64_t number)
{
    const uint64_t k = seed ^ stream;
    const uint32_t key[2] = { (uint32_t)k, (uint32_t)(k >> 32) };
    int half = 1;
    uint64_t x = (uint64_t)i;
    assert(0 <= i && i < n && n <= INT64_C(1) << 62);
    /* The network permutes 0 .. 4^half - 1, the smallest such range that contains n. */
    while (UINT64_C(1) << 2 * half < (uint64_t)n) half++;
    /* Cycle walking: numbers beyond n are permuted again until one is inside. */
    do x = permute(x, half, key, number);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
