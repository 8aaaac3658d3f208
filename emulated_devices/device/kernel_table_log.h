/* kernel_table_log.h -- logarithms of tables of kernels, and the law of products, for kernel_table.c and its reader. */
#ifndef ORRERY_KERNEL_TABLE_LOG_H
#define ORRERY_KERNEL_TABLE_LOG_H

#include "emulated_devices/device/kernel_table.h"
#include <math.h>

/** The logarithm to base 2 of x > 0, linear between powers of two: no rounding differs between machines. */
static inline double table_log(double x)
{
    int exponent;
    const double part = frexp(x, &exponent);            /* x = part 2^exponent, 1/2 <= part < 1 */
    return exponent - 2 + 2 * part;
}

/** The law of products without a factor. */
double table_law(const struct kernel_table *, double rows, double columns, double depth);

#endif
