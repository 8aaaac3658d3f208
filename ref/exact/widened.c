/* widened.c -- the operations of the 16-bit formats with exact sums: those of ref/ops/widened.c, on the fp32 operations
 * of ref/exact/.  A sum that is stored in 16 bits is rounded to fp32 first, and then once more, as in ordinary
 * arithmetic; partial sums and gradients are not rounded at all.  ops_exact returns the tables; nothing fails. */
#define WIDE_OPS ops_x32
#define WIDE_SUMS EXACT
#define NARROW(format) ops_exact_##format
#include "ref/ops/widened.c"
