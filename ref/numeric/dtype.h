/* dtype.h -- number formats: their names, sizes and rounding units.
 *
 * All rooms include this file, from ref/ops/ to cli/; no function here can fail.
 */
#ifndef ORRERY_DTYPE_H
#define ORRERY_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

/* X(id, name as typed after --dtype, name in safetensors files, bytes, unit roundoff, smallest positive number, largest
 * number; the last three are 0 for integers) */
#define DTYPES(X)                                                           \
    X(F32, "fp32",  "F32", 4, 0x1p-24, 0x1p-149, 0x1.fffffep127)            \
    X(F64, "fp64",  "F64", 8, 0x1p-53, 0x1p-1074, 0x1.fffffffffffffp1023)   \
    X(BF16, "bf16", "BF16", 2, 0x1p-8, 0x1p-133, 0x1.fep127)                \
    X(F16, "fp16",  "F16", 2, 0x1p-11, 0x1p-24, 65504.0)                    \
    X(I32, "int32", "I32", 4, 0.0, 0.0, 0.0)                                \
    X(I64, "int64", "I64", 8, 0.0, 0.0, 0.0)                                \
    X(U8,  "bytes", "U8",  1, 0.0, 0.0, 0.0)                                \
    X(EXACT, "exact sums", "exact sums", 16, 0x1p-53, 0x1p-100, 0x1p100)    /* partial sums: fixed_sum.h */

enum dtype {
#define X(id, name, file_name, bytes, unit, step, largest) id,
    DTYPES(X)
#undef X
    DTYPE_COUNT
};

size_t dtype_size(enum dtype);                  /* bytes of one element */
const char *dtype_name(enum dtype);             /* "fp32" */
const char *dtype_file_name(enum dtype);        /* "F32", as safetensors spells it */
double dtype_unit(enum dtype);                  /* unit roundoff u: |fl(x) - x| <= u |x|, without over- or underflow */
double dtype_step(enum dtype);                  /* distance of neighbours where 2 u |x| is less: the smallest number */
double dtype_largest(enum dtype);               /* the largest number */
enum dtype dtype_wide(enum dtype);              /* the format of its sums: fp32 for 16 bits, else itself */
bool dtype_is_narrow(enum dtype);                /* whether that is another format: 16 bits */
/* The dtype of this name (either spelling), or DTYPE_COUNT if there is none. */
enum dtype dtype_by_name(const char *name);

#endif
