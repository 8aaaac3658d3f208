/* permutation.h -- an order of 0 .. n - 1 that a seed decides, one item at a time: no list, no state.
 *
 * A Feistel network of four rounds, whose functions are words of Philox, permutes the numbers of 2h bits, 4^h >= n;
 * a number that is n or more is permuted again until it is below n, which at most 3 of 4 are not.
 *
 * Source  M. Luby, C. Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", SIAM J.
 *         Comput. 17(2), 1988; J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, section 5.
 * Errors  none
 *
 * ref/text/corpus.c shuffles windows with these functions, ref/model/load.c experts.
 */
#ifndef ORRERY_PERMUTATION_H
#define ORRERY_PERMUTATION_H

#include <stdint.h>

/** Item i of the permutation of 0 .. n - 1 of (seed, stream, number); 0 <= i < n <= 2^62.  Pure. */
int64_t permutation_item(int64_t i, int64_t n, uint64_t seed, uint64_t stream, uint64_t number);

#endif
