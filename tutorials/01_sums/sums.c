/* sums.c -- lesson 01: sums and rounding.  README.md says what to do, sums.h
 * what each function must return. */
#include "sums.h"

float sum_forward(const float *x, int n)
{
/*SOLUTION*/
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
/*SKELETON
    // your code
    return 0;
*/
}

float sum_pairs(const float *x, int n)
{
/*SOLUTION*/
    const int first = /*HALF*/(n + 1) / 2/*|n / 2*/;
    if (n == 0) return 0;
    if (n == 1) return x[0];
    return sum_pairs(x, first) + sum_pairs(x + first, n - first);
/*SKELETON
    // your code: it may call itself
    return 0;
*/
}

float sum_parts(const float *x, int n, int parts)
{
/*SOLUTION*/
    float sum = 0;
    for (int i = 0; i < parts; i++) {
        const struct block b = block_of(n, parts, /*ORDER*/i/*|parts - 1 - i*/);
        sum += sum_forward(x + b.start, (int)b.count);
    }
    return sum;
/*SKELETON
    // your code: block_of(n, parts, i) is in course.h
    return 0;
*/
}

double sum_bound(const float *x, int n)
{
/*SOLUTION*/
    double sizes = 0;
    for (int i = 0; i < n; i++) sizes += fabs((double)x[i]);
    return n > 0 ? (n - 1) * ldexp(1, -24) * sizes : 0;
/*SKELETON
    // your code
    return 0;
*/
}

float sum_careful(const float *x, int n)
{
/*SOLUTION*/
    float sum = 0, lost = 0;
    for (int i = 0; i < n; i++) {
        const float next = sum + x[i];
        lost += fabsf(sum) >= fabsf(x[i]) ? (sum - next) + x[i] : (x[i] - next) + sum;
        sum = next;
    }
    return sum + lost;
/*SKELETON
    // your code
    return 0;
*/
}
