/* exact.c -- lesson 21: sums that do not depend on the order.  README.md says
 * what to do, exact.h what each function must return. */
#include "exact.h"

int grid_exponent(const float *x, int n)
{
/*SOLUTION*/
    float top = 0;
    int exponent = 0;
    for (int i = 0; i < n; i++) top = fmaxf(top, fabsf(x[i]));
    if (top > 0) frexpf(top, &exponent);
    return exponent - /*BITS*/40/*|38*/;
/*SKELETON
    // your code: frexpf(top, &e) gives the e with 2^(e-1) <= top < 2^e
    return 0;
*/
}

int64_t grid_sum(const float *x, int n, int g)
{
/*SOLUTION*/
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += (int64_t)rint(ldexp((double)x[i], -g));
    return sum;
/*SKELETON
    // your code: rint() gives the nearest integer, of two the even one
    return 0;
*/
}

float grid_round(int64_t sum, int g)
{
/*SOLUTION*/
    return ldexpf((float)sum, g);
/*SKELETON
    // your code
    return 0;
*/
}

float exact_parts(const float *x, int n, int parts)
{
/*SOLUTION*/
    const int g = grid_exponent(x, n);
    int64_t sum = 0;
    for (int i = 0; i < parts; i++) {
        const struct block b = block_of(n, parts, i);
        sum += grid_sum(x + b.start, (int)b.count, g);
    }
    return grid_round(sum, g);
/*SKELETON
    // your code: block_of(n, parts, i) is in course.h
    return 0;
*/
}
