/* dtype.h -- number formats: their names, sizes and rounding units. */
#ifndef ORRERY_DTYPE_H
#define ORRERY_DTYPE_H

#include <stddef.h>

/* X(id, name as typed after --dtype, name in safetensors files, bytes, unit roundoff; 0 for integers) */
#define DTYPES(X)                                            \
    X(F32, "fp32",  "F32", 4, 5.9604644775390625e-8)         \
    X(F64, "fp64",  "F64", 8, 1.1102230246251565e-16)        \
    X(BF16, "bf16", "BF16", 2, 0.00390625)                   \
    X(F16, "fp16",  "F16", 2, 0.00048828125)                 \
    X(I32, "int32", "I32", 4, 0.0)                           \
    X(I64, "int64", "I64", 8, 0.0)                           \
    X(U8,  "bytes", "U8",  1, 0.0)

enum dtype {
#define X(id, name, file_name, bytes, unit) id,
    DTYPES(X)
#undef X
    DTYPE_COUNT
};

size_t dtype_size(enum dtype);                  /* bytes of one element */
const char *dtype_name(enum dtype);             /* "fp32" */
const char *dtype_file_name(enum dtype);        /* "F32", as safetensors spells it */
double dtype_unit(enum dtype);                  /* unit roundoff u: |fl(x) - x| <= u |x|, without over- or underflow */
enum dtype dtype_wide(enum dtype);              /* the format of its sums: fp32 for 16 bits, else itself */
/* The dtype of this name (either spelling), or DTYPE_COUNT if there is none. */
enum dtype dtype_by_name(const char *name);

#endif
