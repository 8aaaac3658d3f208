/* table.h -- prototypes of all operations in the format being compiled, and their table.  Files of ref/ops/ call
 * these functions.  No function returns an error code. */
#ifndef ORRERY_OPS_TABLE_H
#define ORRERY_OPS_TABLE_H

#include "ref/ops/real.h"

#define OPERATION(name, need, operands, cost) void FN(name)(LIST_OF(PARAMETER, operands));
#include "ref/ops/ops.def"

extern const struct ops FN(ops);

#endif
