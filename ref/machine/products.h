/* products.h -- whether the BLAS computes right matrix products on this processor.
 * Some kernels of some versions of a BLAS are wrong on some processors, for some shapes only.  So shapes at the edges
 * of kernels are tried in both formats and all transpositions, and each number is held against plain sums.
 * Source    Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: the bound of a sum of k products
 * Errors    none
 * cli/doctor asks.
 */
#ifndef ORRERY_PRODUCTS_H
#define ORRERY_PRODUCTS_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Try products of all shapes, which takes less than a second.
 * @param[out] text  the first wrong number: "fp32 product of 65 x 33 and 33 x 129, ..: [3,7] is 1.5, not 2.5"; or how
 *                   many products were tried.
 * @return whether every number is within its bound.
 */
bool products_check(char *text, size_t size);

/** Hold a product against plain sums: for tests, which pass one that is wrong.
 *  @param C  m x n, of A (m x k, stored transposed if across_a) and B (k x n, likewise).
 *  @return false: text names the first number outside its bound. */
bool products_hold_fp64(const double *C, const double *A, const double *B, const int shape[3], bool across_a,
                        bool across_b, char *text, size_t size);

#endif
