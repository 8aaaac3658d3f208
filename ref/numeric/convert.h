/* convert.h -- converts arrays from one floating-point format to another.
 *
 * Devices, ref/model, ref/golden and verify/ call this file.  No function here can fail, and uses all cores for long
 * arrays.
 */
#ifndef ORRERY_CONVERT_H
#define ORRERY_CONVERT_H

#include "ref/numeric/tensor.h"

/**
 * to[i] = from[i], for n elements of floating-point formats.
 * The arrays must not overlap.  Equal formats: the bits are copied.
 * Rounding: exact if `to` can represent all numbers of `from`; else each element once, to nearest, ties to even.  NaN
 * as in float16.h; between fp32 and fp64 as the processor does.
 */
void convert_numbers(void *to, enum dtype to_format, const void *from, enum dtype from_format, int64_t n);

/** Convert a tensor to another one with as many elements. */
static inline void tensor_convert(struct tensor to, struct tensor from)
{
    convert_numbers(to.data, to.dtype, from.data, from.dtype, tensor_count(from));
}

#endif
