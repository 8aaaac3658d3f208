/* The table of operations in one format.  ref/ops/ops.c picks this table by a device's format; backends call
 * operations through the table.  No function returns an error code. */
#include "ref/ops/real.h"
#include "ref/ops/table.h"

const struct ops FN(ops) = {
    .dtype = REAL_DTYPE,
#ifdef SUMS_EXACTLY
    .sums = EXACT,
#else
    .sums = REAL_DTYPE,
#endif
#define OPERATION(name, need, operands, cost) .name = FN(name),
#include "ref/ops/ops.def"
};
