/* widened.c -- the operations of the 16-bit formats with exact sums: those of ref/ops/widened.c, on the fp32 operations
 * of ref/exact/.  Products store their finished sums themselves, rounded once from all their bits.  ops_exact returns
 * the tables; nothing fails. */
#include "ref/exact/unrounded.h"
#include "ref/ops/real.h"
#define STORES_SUMS
#define WIDE_OPS FN(ops)
#define WIDE_SUMS EXACT
#define NARROW(format) FN(ops_##format)
#define AFTER_ROUNDING(Y, from) unrounded_move(Y, from)
#include "ref/ops/widened.c"
