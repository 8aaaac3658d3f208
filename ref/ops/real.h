/* real.h -- included by every source of an operation.  The Makefile compiles who includes it with -DREAL=F32 and with
 * -DREAL=F64; and ref/ops once more with -DREAL=X32 and -DREAL=X32S2, for the arithmetics of ref/exact/, with operands
 * of one and of two slices: numbers are fp32, and no product is fused with a sum.
 *
 *   real          the C type               R(2.5)        a constant of that type
 *   FN(name)      name_f32, _f64, _x32 ..   REAL_FN(exp)  expf or exp
 *   BLAS(gemm)    cblas_sgemm or dgemm     DATA(X)       X.data as real *
 *   ONCE(text)    text, in the compilation for F32 alone: what a file defines for both formats
 *
 * Files of ref/ops/ and ref/optim/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_REAL_H
#define ORRERY_REAL_H

#include "ref/ops/ops.h"
#include <assert.h>
#include <math.h>

#define REAL_IS_F32 1
#define REAL_IS_F64 2
#define REAL_IS_X32 3
#define REAL_IS_X32S2 4
#define REAL_CAT_(a, b) a##b
#define REAL_CAT(a, b) REAL_CAT_(a, b)
#ifndef REAL
#define REAL F32                /* so that editors and checkers can read the file on its own */
#endif

#if REAL_CAT(REAL_IS_, REAL) == REAL_IS_F32
#define FN(name) name##_f32
#define ONCE(...) __VA_ARGS__
#elif REAL_CAT(REAL_IS_, REAL) >= REAL_IS_X32
#if REAL_CAT(REAL_IS_, REAL) == REAL_IS_X32
#define FN(name) name##_x32
#define RULE SUMS_EXACT         /* ref/exact/rule.h */
#define SLICES 1
#else
#define FN(name) name##_x32s2
#define RULE SUMS_EXACT2
#define SLICES 2
#endif
#define ONCE(...)
#define SUMS_EXACTLY            /* ref/exact/ has the operations that add over rows */
#define REAL_FN(name) name##_x32
#include "ref/exact/functions.h"
#endif

#if REAL_CAT(REAL_IS_, REAL) != REAL_IS_F64
typedef float real;
#define REAL_DTYPE F32
#define R(x) x##f
#ifndef REAL_FN
#define REAL_FN(name) name##f
#endif
#define BLAS(name) cblas_s##name
#else
typedef double real;
#define REAL_DTYPE F64
#define FN(name) name##_f64
#define R(x) x
#define REAL_FN(name) name
#define BLAS(name) cblas_d##name
#define ONCE(...)
#endif

#define DATA(X) ((real *)(X).data)
#define CONST_DATA(X) ((const real *)(X).data)

#endif
