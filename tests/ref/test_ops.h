/* test_ops.h -- what the tests of the operations share: guarded tensors, numbers that carry their error, gradients.
 *
 * Every expected value is computed in long double by straightforward loops over `num`, a value with a bound on how far
 * the operation's own result may be from it.  The bounds are not chosen: each elementary step adds what its rounding
 * can do (running error analysis: N. J. Higham, "Accuracy and stability of numerical algorithms", 2nd ed., section
 * 3.3), and a sum of n terms, in whatever order, gamma_(n-1) times the sum of their sizes (section 4.2).  Tests in
 * tests/ref/ call these functions.
 */
#ifndef ORRERY_TEST_OPS_H
#define ORRERY_TEST_OPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <float.h>
#include <omp.h>
#include <stdio.h>
#include "ref/numeric/philox.h"
#include "ref/ops/ops.h"

/* ---- tensors: outputs start as NaN between guards, and are all freed together ------------------------------------ */

enum { GUARD = 32, POOL = 256 };
static const double guard_value = -12288;         /* in every format: 3 * 2^12 */
static struct tensor pool[POOL];
static int pooled;
static char case_name[200];             /* what is being tested, for messages */

static inline struct tensor guarded(enum dtype t, int64_t rows, int64_t cols, bool vector)
{
    const int64_t count = rows * cols;
    char *block = malloc((size_t)(count + 2 * GUARD) * dtype_size(t));
    assert_non_null(block);
    assert_true(pooled < POOL);
    struct tensor all = tensor_1d(block, t, count + 2 * GUARD);
    for (int64_t i = 0; t != I32 && i < count + 2 * GUARD; i++)
        tensor_set(all, i, i < GUARD || i >= GUARD + count ? guard_value : NAN);
    void *data = block + GUARD * dtype_size(t);
    return pool[pooled++] = vector ? tensor_1d(data, t, cols) : tensor_2d(data, t, rows, cols);
}
static inline struct tensor matrix(enum dtype t, int64_t rows, int64_t cols) { return guarded(t, rows, cols, false); }
static inline struct tensor vector(enum dtype t, int64_t n) { return guarded(t, 1, n, true); }

/* Numbers like 0.371 in (-size, size); the same for the same stream. */
static inline struct tensor fill(struct tensor X, double size, const char *stream)
{
    for (int64_t i = 0; i < tensor_count(X); i++)
        tensor_set(X, i, size * (2 * random_uniform(1, random_stream(stream), (uint64_t)i) - 1));
    return X;
}
static inline struct tensor fill_with(struct tensor X, double value)
{
    for (int64_t i = 0; i < tensor_count(X); i++) tensor_set(X, i, value);
    return X;
}
static inline struct tensor copy_of(struct tensor X)
{
    struct tensor Y = X.ndim == 1 ? vector(X.dtype, X.dim[0]) : matrix(X.dtype, tensor_rows(X), tensor_cols(X));
    if (tensor_count(X)) memcpy(Y.data, X.data, tensor_bytes(X));
    return Y;
}
/* Whole numbers first .. first+choices-1. */
static inline struct tensor integers(int64_t n, int first, int choices, const char *stream)
{
    struct tensor ids = vector(I32, n);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)ids.data)[i] = first + (int)(choices * random_uniform(2, random_stream(stream), (uint64_t)i));
    return ids;
}
static inline int id_at(struct tensor ids, int64_t n) { return ((int32_t *)ids.data)[n]; }

static inline void check_guards_and_free(void)
{
    const char *hurt = NULL;
    for (int i = 0; i < pooled; i++) {
        const int64_t count = tensor_count(pool[i]);
        char *block = (char *)pool[i].data - GUARD * dtype_size(pool[i].dtype);
        struct tensor all = tensor_1d(block, pool[i].dtype, count + 2 * GUARD);
        for (int g = 0; pool[i].dtype != I32 && g < GUARD; g++) {
            if (tensor_get(all, g) != guard_value) hurt = "before";
            if (tensor_get(all, GUARD + count + g) != guard_value) hurt = "after";
        }
        free(block);
    }
    pooled = 0;
    if (hurt) fail_msg("%s: wrote %s a tensor", case_name, hurt);
}

/* ---- numbers that carry their error ------------------------------------------------------------------------------ */

typedef struct { long double v, e; } num;       /* the exact value; a bound on |computed - exact| */

static long double unit, tiny;                  /* of the format under test */

/* A thousandth more than the unit roundoff covers the rounding of the long doubles here. */
static inline void set_format(enum dtype t)
{
    unit = 1.001L * dtype_unit(t);
    tiny = t == F32 ? FLT_TRUE_MIN : DBL_TRUE_MIN;
}
static inline num exact(long double v) { return (num){ v, 0 }; }
static inline num at(struct tensor X, int64_t i) { return exact(tensor_get(X, i)); }
static inline num rounded(long double v, long double e) { return (num){ v, e + unit * (fabsl(v) + e) + tiny }; }
static inline num plus(num a, num b) { return rounded(a.v + b.v, a.e + b.e); }
static inline num minus(num a, num b) { return rounded(a.v - b.v, a.e + b.e); }
static inline num times(num a, num b) { return rounded(a.v * b.v, fabsl(a.v) * b.e + fabsl(b.v) * a.e + a.e * b.e); }
static inline num over(num a, num b)
{
    const long double least = fabsl(b.v) - b.e;         /* of the computed divisor */
    return rounded(a.v / b.v, least > 0 ? (a.e + fabsl(a.v / b.v) * b.e) / least : INFINITY);
}
static inline num root(num a)
{
    const long double v = sqrtl(a.v);
    return rounded(v, a.v > a.e ? v - sqrtl(a.v - a.e) : INFINITY);
}
/* The project's exp is within one ulp, at most two rounding units. */
static inline num expo(num a)
{
    num x = { expl(a.v), a.e < 1 ? expl(a.v) * expm1l(a.e) : expl(a.v + a.e) };
    x.e += 2 * unit * (x.v + x.e) + tiny;
    return x;
}
/* libm's tanh is within two units; its derivative is at most 1. */
static inline num hyperbolic(num a)
{
    const long double v = tanhl(a.v);
    return (num){ v, a.e + 2 * unit * fabsl(v) + tiny };
}
/* libm's erfc is within six units (glibc's manual, table of errors); its derivative is -2/sqrt(pi) e^(-x^2). */
static inline num error_complement(num a)
{
    const long double v = erfcl(a.v), near = fabsl(a.v) > a.e ? fabsl(a.v) - a.e : 0;
    return (num){ v, 1.1283791670955125738961589031215452L * expl(-near * near) * a.e + 6 * unit * v + tiny };
}
static inline num logarithm(num a) { return rounded(logl(a.v), a.v > a.e ? -log1pl(-a.e / a.v) : INFINITY); }

/* A sum in an order we do not want to know. */
struct sum { long double v, e, size; int64_t n; };
static inline void sum_add(struct sum *s, num a) { s->v += a.v, s->e += a.e, s->size += fabsl(a.v) + a.e, s->n++; }
static inline num sum_end(struct sum s)
{
    const long double nu = (long double)s.n * unit;
    return (num){ s.v, s.e + nu / (1 - nu) * s.size };
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static inline void expect_near(const char *tensor, struct tensor got, int64_t i, num want)
{
    const double x = tensor_get(got, i);
    if (!(fabsl((long double)x - want.v) <= want.e))
        fail_msg("%s: %s [%lld,%lld] at (%lld,%lld): got %.17g, want %.17Lg, off by %.3Lg, bound %.3Lg", case_name,
                 tensor, (long long)tensor_rows(got), (long long)tensor_cols(got), (long long)(i / tensor_cols(got)),
                 (long long)(i % tensor_cols(got)), x, want.v, fabsl((long double)x - want.v), want.e);
}

static inline void expect_same_bits(const char *tensor, struct tensor got, struct tensor want)
{
    assert_int_equal(tensor_count(got), tensor_count(want));
    for (int64_t i = 0; i < tensor_count(got); i++) {
        const double x = tensor_get(got, i), y = tensor_get(want, i);
        if (memcmp(&x, &y, sizeof x) != 0)
            fail_msg("%s: %s [%lld,%lld] element %lld: got %.17g, want exactly %.17g", case_name, tensor,
                     (long long)tensor_rows(got), (long long)tensor_cols(got), (long long)i, x, y);
    }
}

/**
 * Hold dX to central differences of L = sum(dY * Y), Y = forward(X), in fp64.
 *
 * With D(h) = (L(x+h) - L(x-h))/2h the gradient is (4 D(h/2) - D(h))/3 (Richardson).  Its truncation error is of order
 * h^4 and certainly less than its correction |D(h/2) - D(h)|/3, of order h^2; rounding adds n u sum|dY Y| / h for each
 * evaluation, where n counts the roundings on the way to an element of Y.
 */
static inline void expect_gradient(const char *tensor, struct tensor dX, struct tensor X, void (*forward)(void),
                                   struct tensor Y, struct tensor dY, double roundings)
{
    const double h = 1.0 / 512;
    const double step[4] = { h, -h, h / 2, -h / 2 };
    for (int64_t i = 0; i < tensor_count(X); i++) {
        const double x = tensor_get(X, i);
        long double L[4], size = 0;
        for (int s = 0; s < 4; s++) {
            tensor_set(X, i, x + step[s]);
            forward();
            L[s] = 0, size = 0;
            for (int64_t j = 0; j < tensor_count(Y); j++) {
                L[s] += (long double)tensor_get(dY, j) * tensor_get(Y, j);
                size += fabsl((long double)tensor_get(dY, j) * tensor_get(Y, j));
            }
        }
        tensor_set(X, i, x);
        const long double whole = (L[0] - L[1]) / (2 * h), half = (L[2] - L[3]) / h;
        expect_near(tensor, dX, i, (num){ (4 * half - whole) / 3, fabsl(half - whole) / 3 +
                                                                  4 * roundings * 1.2e-16L * (1 + size) / h });
    }
}

static const enum dtype formats[] = { F32, F64 };
#define FOR_FORMATS(t, op)                                                                       \
    for (int f_ = 0; f_ < 2; f_++)                                                               \
        for (enum dtype t = formats[f_], *once_ = &t; once_; once_ = NULL)                       \
            for (const struct ops *op = (set_format(t), ops_for(t)); op; op = NULL)

#define CASE(...) snprintf(case_name, sizeof case_name, __VA_ARGS__)

#endif
