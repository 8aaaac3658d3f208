/* The table of operations in one format. */
#include "ref/ops/real.h"
#include "ref/ops/table.h"

const struct ops FN(ops) = {
    .dtype = REAL,
#define OPERATION(name, need, operands, cost) .name = FN(name),
#include "ref/ops/ops.def"
};
