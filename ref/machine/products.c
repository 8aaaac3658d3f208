/* products.c -- holds products of the BLAS against plain sums.  cli/doctor calls products_check.  Without memory
 * nothing is tried, and the text says so; there are no other errors. */
#include "ref/machine/products.h"
#include <cblas.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 260 };                    /* rows, columns or depth of a shape that is tried */

/* m, n, k: below, at and above the blocks of usual kernels; a row; a column; a product that has one number. */
static const int shapes[][3] = { { 1, 1, 1 }, { 1, 257, 64 }, { 130, 1, 33 }, { 16, 16, 16 }, { 47, 31, 129 },
                                 { 65, 129, 33 }, { 96, 96, 96 }, { 128, 255, 17 }, { 257, 48, 260 } };
enum { SHAPES = sizeof shapes / sizeof *shapes, WAYS = 4 };

/* Numbers between -1 and 1 that are the same on every machine. */
static double products_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;           /* Numerical Recipes' generator */
    return (double)(*state >> 8) / (1 << 23) - 1;
}

/* An element of a matrix of so many rows and columns, which may be stored transposed. */
static int64_t element(int row, int column, int rows, int columns, bool across)
{
    return across ? (int64_t)column * rows + row : (int64_t)row * columns + column;
}

/* C[i,j] = sum_k A[i,k] B[k,j], to k roundings of the sum of absolute products. */
static bool hold(const double *C, const double *A, const double *B, const int shape[3], bool across_a, bool across_b,
                 double roundoff, const char *format, char *text, size_t size)
{
    const int m = shape[0], n = shape[1], k = shape[2];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            long double sum = 0, absolute = 0;
            for (int l = 0; l < k; l++) {
                const long double term = (long double)A[element(i, l, m, k, across_a)] *
                                         (long double)B[element(l, j, k, n, across_b)];
                sum += term, absolute += fabsl(term);
            }
            const double got = C[(int64_t)i * n + j];
            if (fabsl((long double)got - sum) <= 2 * (k + 1) * (long double)roundoff * absolute) continue;
            snprintf(text, size, "%s product of %d x %d and %d x %d%s%s: [%d,%d] is %.12g, not %.12Lg", format, m, k,
                     k, n,
                     across_a ? ", the first transposed" : "", across_b ? ", the second transposed" : "", i, j, got,
                     sum);
            return false;
        }
    return true;
}

bool products_hold_fp64(const double *C, const double *A, const double *B, const int shape[3], bool across_a,
                        bool across_b, char *text, size_t size)
{
    return hold(C, A, B, shape, across_a, across_b, DBL_EPSILON / 2, "fp64", text, size);
}

/* Room for matrices in both formats. */
struct products { double *A, *B, *C; float *a, *b, *c; };

static void products_draw(struct products *p)
{
    uint32_t state = 1;
    for (int i = 0; i < MOST * MOST; i++) {
        p->a[i] = (float)products_number(&state), p->A[i] = p->a[i];
        p->b[i] = (float)products_number(&state), p->B[i] = p->b[i];
    }
}

/* The result is full of numbers that no product has: what is not written shows. */
static bool try_shape(const struct products *p, const int shape[3], bool across_a, bool across_b, char *text,
                      size_t size)
{
    const int m = shape[0], n = shape[1], k = shape[2];
    const int a = across_a ? CblasTrans : CblasNoTrans, b = across_b ? CblasTrans : CblasNoTrans;
    for (int i = 0; i < m * n; i++) p->C[i] = p->c[i] = -1e30f;
    cblas_dgemm(CblasRowMajor, a, b, m, n, k, 1, p->A, across_a ? m : k, p->B, across_b ? k : n, 0, p->C, n);
    if (!hold(p->C, p->A, p->B, shape, across_a, across_b, DBL_EPSILON / 2, "fp64", text, size)) return false;
    cblas_sgemm(CblasRowMajor, a, b, m, n, k, 1, p->a, across_a ? m : k, p->b, across_b ? k : n, 0, p->c, n);
    for (int i = 0; i < m * n; i++) p->C[i] = p->c[i];
    return hold(p->C, p->A, p->B, shape, across_a, across_b, FLT_EPSILON / 2, "fp32", text, size);
}

bool products_check(char *text, size_t size)
{
    const size_t room = (size_t)MOST * MOST;
    struct products p = { malloc(room * sizeof *p.A), malloc(room * sizeof *p.B), malloc(room * sizeof *p.C),
                          malloc(room * sizeof *p.a), malloc(room * sizeof *p.b), malloc(room * sizeof *p.c) };
    bool right = p.A && p.B && p.C && p.a && p.b && p.c;
    if (!right) snprintf(text, size, "no memory to try products");
    else products_draw(&p);
    for (int i = 0; right && i < SHAPES * WAYS; i++)
        right = try_shape(&p, shapes[i / WAYS], i & 1, i & 2, text, size);
    if (right) snprintf(text, size, "%d products of fp32 and fp64 are right", 2 * SHAPES * WAYS);
    free(p.A), free(p.B), free(p.C), free(p.a), free(p.b), free(p.c);
    return right;
}
