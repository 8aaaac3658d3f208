/* convert.h -- arrays of one floating-point format as another. */
#ifndef ORRERY_CONVERT_H
#define ORRERY_CONVERT_H

#include "ref/numeric/tensor.h"

/**
 * to[i] = from[i], for n elements, in the formats that dtype.h gives a unit roundoff.
 * The arrays do not overlap.  Equal formats: the bits are copied.
 * Rounding: exact where `to` holds all numbers of `from`; else each element once, to nearest, ties to even.  NaN as in
 * float16.h; between fp32 and fp64 as the processor does.
 */
void convert(void *to, enum dtype to_format, const void *from, enum dtype from_format, int64_t n);

/** The same for tensors with as many elements. */
static inline void tensor_convert(struct tensor to, struct tensor from)
{
    convert(to.data, to.dtype, from.data, from.dtype, tensor_count(from));
}

#endif
