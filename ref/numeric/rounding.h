/* rounding.h -- how far rounding moves the result of one operation.
 *
 * A sum of n products in a format with unit roundoff u differs from the exact one by at most gamma_n times the sum of
 * absolute products, gamma_n = n u / (1 - n u), in any order of addition, in any number of parts.  That worst case does
 * not occur: by N. Higham and T. Mary, doi:10.1137/18M1226312, theorem 2.4, lambda sqrt(n) u is exceeded with
 * probability at most 2 exp(-lambda^2 / 2), 4e-22 for lambda = 10.  So the smaller of the two is used.
 *
 * A result that is stored is rounded once more.
 *
 * A subnormal number is off by up to half the smallest step of its format, whatever its size.  Sums of subnormal
 * numbers are exact; products are not.  A number beyond the largest of its format becomes infinite, and its reciprocal
 * 0: a sigmoid that is made of e^-x is 0 where e^-x is as large.
 *
 * check/recompute/ and cli/check_found.c bound recomputed results with these functions.  No function returns an
 * error code.
 */
#ifndef ORRERY_ROUNDING_H
#define ORRERY_ROUNDING_H

#include "ref/numeric/dtype.h"
#include <stdbool.h>
#include <stdint.h>

#define ROUNDING_LAMBDA 10.0

struct rounding {
    enum dtype results;                 /* format of results */
    double sum;                         /* unit roundoff of the format that adds */
    double store;                       /* unit roundoff of the format of results */
    double tiny;                        /* what underflow moves a stored number by: half its smallest step */
    double sum_tiny;                    /* the same of a number of the format that adds, such as a product */
    double lost;                        /* a quotient 1 / x below this may be 0: x is stored as infinity */
    double sum_lost;                    /* the same where x is a number of the format that adds */
    int parts;                          /* of each product that are stored and then added: devices along tp, split-K */
    int gradient_parts;                 /* the same of a gradient of weights: also microbatches; at least parts */
    bool fused;                         /* what is between the steps of an operation is not stored */
    bool stored_norms;                  /* norms store the statistics of a row */
    bool stored_states;                 /* weights and states of steps are kept in the format, without masters */
};

/** The rounding of operations whose results, and those of their steps, are stored in a format.
 *  @param sums   format that adds; DTYPE_COUNT: dtype_wide() of the other.
 *  @param parts  at least 1. */
struct rounding rounding_of(enum dtype results, enum dtype sums, int parts);

/** The error of a sum of n terms over the sum of their absolute values; infinite if nothing can be said. */
double rounding_of_sum(double u, int64_t n);

/** Return what independent roundings of all terms of a sum, each by at most u, move it by.
 *  @param sum, root  sum of the absolute terms; root of the sum of their squares. */
double rounding_of_terms(double u, double sum, double root);

/** The error of storing a number that is off by `error` already. */
static inline double rounding_when_stored(const struct rounding *rounding, double x, double error)
{
    return rounding->store * ((x < 0 ? -x : x) + error) + rounding->tiny;
}

#endif
