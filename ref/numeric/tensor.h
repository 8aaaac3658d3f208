/* tensor.h -- a view of numbers: address, format and shape.
 *
 * A tensor does not own its data, which is row-major and contiguous.  Tensors are passed by value.  tensor_none stands
 * for an optional argument that is left out.  Files of schemes/, check/, ref/ops/, verify/ and other rooms call these
 * functions.  No function returns an error code.
 */
#ifndef ORRERY_TENSOR_H
#define ORRERY_TENSOR_H

#include "ref/numeric/dtype.h"
#include "ref/numeric/fixed_sum.h"
#include "ref/numeric/float16.h"
#include <stdbool.h>
#include <stdint.h>

enum { TENSOR_MAX_DIMS = 4 };

struct tensor {
    void *data;                         /* first element; row-major without gaps; NULL: no tensor */
    enum dtype dtype;                   /* format of each element */
    int ndim;                           /* dimensions in use, 0 to TENSOR_MAX_DIMS */
    int64_t dim[TENSOR_MAX_DIMS];       /* slowest first; 0 from ndim on */
};

static const struct tensor tensor_none = { 0 };

static inline struct tensor tensor_1d(void *data, enum dtype dtype, int64_t n)
{
    return (struct tensor){ .data = data, .dtype = dtype, .ndim = 1, .dim = { n } };
}

static inline struct tensor tensor_2d(void *data, enum dtype dtype, int64_t rows, int64_t cols)
{
    return (struct tensor){ .data = data, .dtype = dtype, .ndim = 2, .dim = { rows, cols } };
}

static inline int64_t tensor_count(struct tensor t)
{
    int64_t n = t.ndim > 0;
    for (int i = 0; i < t.ndim; i++) n *= t.dim[i];
    return n;
}

static inline size_t tensor_bytes(struct tensor t) { return (size_t)tensor_count(t) * dtype_size(t.dtype); }

static inline bool tensor_present(struct tensor t) { return t.ndim > 0; }

/* The tensor as a matrix: the last dimension is a row. */
static inline int64_t tensor_cols(struct tensor t) { return t.ndim > 0 ? t.dim[t.ndim - 1] : 0; }
static inline int64_t tensor_rows(struct tensor t)
{
    int64_t n = t.ndim > 0;
    for (int i = 0; i + 1 < t.ndim; i++) n *= t.dim[i];
    return n;
}

/* A view of the first entries along the first dimension. */
static inline struct tensor tensor_first(struct tensor t, int64_t count)
{
    t.dim[0] = count;
    return t;
}

/* A view of some rows of a matrix. */
static inline struct tensor tensor_rows_of(struct tensor t, int64_t first, int64_t count)
{
    return tensor_2d((char *)t.data + (size_t)(first * tensor_cols(t)) * dtype_size(t.dtype), t.dtype, count,
                     tensor_cols(t));
}

/* Element i of any floating-point format as a double; tensor_set rounds once.  Slow: for reports and tests. */
static inline double tensor_get(struct tensor t, int64_t i)
{
    switch (t.dtype) {
    case F32:  return ((const float *)t.data)[i];
    case BF16: return bf16_to_double(((const uint16_t *)t.data)[i]);
    case F16:  return fp16_to_double(((const uint16_t *)t.data)[i]);
    case EXACT: return fixed_get(t.data, i);
    default:   return ((const double *)t.data)[i];
    }
}
static inline void tensor_set(struct tensor t, int64_t i, double x)
{
    switch (t.dtype) {
    case F32:  ((float *)t.data)[i] = (float)x; break;
    case BF16: ((uint16_t *)t.data)[i] = bf16_from_double(x); break;
    case F16:  ((uint16_t *)t.data)[i] = fp16_from_double(x); break;
    case EXACT: fixed_set(t.data, i, x); break;
    default:   ((double *)t.data)[i] = x; break;
    }
}

#endif
