/* simplex.h -- the least value of a function of a few numbers whose derivatives nobody knows.  bench/calibrate/fit.c
 * calls these functions.  No function returns an error code. */
#ifndef ORRERY_SIMPLEX_H
#define ORRERY_SIMPLEX_H

enum { SIMPLEX_MOST = 8 };

/** The function: of x[n], as its owner counts them. */
typedef double simplex_fn(void *context, const double *x);

/**
 * Search from x, twice, the second time around the best place, because a simplex can collapse.
 * Source   J. Nelder and R. Mead, doi:10.1093/comjnl/7.4.308.
 * @param n  1 .. SIMPLEX_MOST.
 * @param[in,out] x  [n] where it begins; the best place found.
 * @param spread  [n] the first step along each number.
 * @param calls  of f, about, each time.
 * @return f at x.
 */
double simplex_minimise(simplex_fn *f, void *context, int n, double *x, const double *spread, int calls);

#endif
