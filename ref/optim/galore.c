/* galore.c -- finds the shapes of projected states, and computes the projection P.  The arithmetic of a step, once
 * per format, is in galore_step.c.
 *
 * schemes/data/, device/ and verify/reference/ call this file. galore_refresh returns ERR_CHECK if LAPACK fails;
 * nothing else can fail.
 */
#define REAL F64
#include "ref/optim/galore.h"
#include "ref/numeric/convert.h"
#include "ref/ops/gemm.h"
#include "ref/machine/threads.h"
#include "ref/optim/loss_scale.h"
#include "ref/optim/table.h"

/* LAPACK, part of OpenBLAS: all eigenvalues, ascending, and eigenvectors of a symmetric matrix. */
void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
             const int *lwork, int *iwork, const int *liwork, int *info);

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

struct low_rank low_rank_of(const struct optimizer *optimizer, const struct hyperparameters *hyper,
                            bool linear, int64_t m, int64_t n)
{
    /* The shorter side a is projected to r directions; if m >= n, P [a,r] stands on the right of G. */
    const int64_t a = m < n ? m : n, b = m < n ? n : m;
    const struct low_rank p = { .r = hyper->rank < a ? hyper->rank : a, .a = a, .b = b, .right = m >= n },
        whole = { 0 };
    return optimizer->low_rank && linear ? p : whole;
}

struct tensor low_rank_shape(const struct optimizer *optimizer, const struct hyperparameters *hyper,
                             struct low_rank low_rank, struct tensor w, int k)
{
    w.data = NULL;
    /* Without a projection the moments have the shape of w. */
    if (!optimizer->low_rank || (low_rank.r == 0 && k < LOW_RANK_PROJECTION)) return w;
    if (low_rank.r == 0) return tensor_none;
    if (k == LOW_RANK_PROJECTION) return tensor_2d(NULL, w.dtype, low_rank.a, low_rank.r);
    if (k == LOW_RANK_HISTORY) return tensor_2d(NULL, w.dtype, hyper->history, low_rank.b * low_rank.r);
    /* R [b,r] on the right, [r,b] on the left: the moments have its shape. */
    return low_rank.right ? tensor_2d(NULL, w.dtype, low_rank.b, low_rank.r)
           : tensor_2d(NULL, w.dtype, low_rank.r, low_rank.b);
}

enum dtype low_rank_format(const struct optimizer *optimizer, const struct hyperparameters *hyper, int k,
                           enum dtype wide)
{
    return optimizer->low_rank && k < LOW_RANK_PROJECTION && low_rank_has_codes(hyper) ? U8 : wide;
}

struct tensor low_rank_state(const struct optimizer *optimizer, const struct hyperparameters *hyper,
                             struct low_rank low_rank, struct tensor w, int k)
{
    const struct tensor numbers = low_rank_shape(optimizer, hyper, low_rank, w, k);
    if (low_rank_format(optimizer, hyper, k, w.dtype) == w.dtype) return numbers;
    return tensor_1d(NULL, U8, galore_coded_bytes(tensor_count(numbers), w.dtype));
}

/* ---- P ----------------------------------------------------------------------------------------------------------- */

/* The workspace that dsyevd needs. */
static int work_doubles(int a) { return 1 + 6 * a + 2 * a * a; }
static int work_ints(int a) { return 3 + 5 * a; }

size_t galore_scratch(struct low_rank low_rank, enum dtype dtype)
{
    /* A refresh needs G [m,n], G G^T [a,a], eigenvalues [a] and LAPACK's workspace, all in fp64. */
    const size_t refresh = sizeof(double) * (size_t)(low_rank.a * low_rank.b + low_rank.a * low_rank.a + low_rank.a
                                                     + work_doubles((int)low_rank.a));
    const size_t ints = sizeof(int) * (size_t)work_ints((int)low_rank.a),
        project = dtype_size(dtype) * (size_t)(low_rank.b * low_rank.r);
    /* A projection needs R [b,r]; both never run at the same time. */
    return refresh + ints > project ? refresh + ints : project;
}

/* Column k of P: a unit vector whose element with the largest magnitude is positive. */
static void put_vector(struct tensor P, int64_t k, const double *v)
{
    const int64_t a = P.dim[0], r = P.dim[1];
    int64_t most = 0;
    for (int64_t i = 1; i < a; i++)
        if (fabs(v[i]) > fabs(v[most])) most = i;
    /* The sign of an eigenvector is arbitrary; this rule fixes it. */
    for (int64_t i = 0; i < a; i++) tensor_set(P, i * r + k, v[most] < 0 ? -v[i] : v[i]);
}

/* P [a, r] = the singular vectors of G with the largest singular values, by the eigenvectors of G G' [a, a]. */
enum error_code galore_refresh(struct low_rank low_rank, struct tensor P, struct tensor G, void *scratch,
                               double *square, struct error *err)
{
    const int64_t m = G.dim[0], n = G.dim[1];
    const int a = (int)low_rank.a, doubles = work_doubles(a), ints = work_ints(a);
    double *wide = scratch, *product = wide + m * n, *value = product + low_rank.a * low_rank.a, *work = value + a;
    int info, *iwork = (int *)(work + doubles);
    /* NaN stays for a gradient that is not finite: P does not change then. */
    for (int64_t k = 0; square && k < low_rank.a; k++) square[k] = NAN;
    if (!tensors_finite(&G, 1)) return OK;
    assert(low_rank.a < 1 << 15);                              /* dsyevd's workspace sizes are ints */
    convert_numbers(wide, F64, G.data, G.dtype, m * n);
    /* product [a,a] = G G^T, or G^T G on the right: its eigenvectors are the singular vectors of G. */
    gemm_f64(low_rank.right ? TRANSPOSED : AS_IS, low_rank.right ? AS_IS : TRANSPOSED, low_rank.a, low_rank.a,
             low_rank.b, 1, wide, n, wide, n, 0, product, low_rank.a);
    const struct tensor whole = tensor_2d(product, F64, low_rank.a, low_rank.a);
    if (!tensors_finite(&whole, 1)) return OK;          /* also if squares overflow */
    /* With several threads dsyevd's bits differ from call to call, and copies on several devices would drift apart. */
    const int threads = threads_set_blas(1);
    dsyevd_("V", "L", &a, product, &a, value, work, &doubles, iwork, &ints, &info);
    threads_set_blas(threads);
    if (info != 0)
        return fail(err, ERR_CHECK, "the singular vectors of a [%lld,%lld] gradient: LAPACK's dsyevd returns %d",
                    (long long)m, (long long)n, info);
    /* Eigenvalues ascend, so the r largest are the last columns. */
    for (int64_t k = 0; k < low_rank.r; k++) put_vector(P, k, product + (low_rank.a - 1 - k) * low_rank.a);
    /* Rounding can make a zero eigenvalue negative. */
    for (int64_t k = 0; square && k < low_rank.a; k++)
        square[k] = value[low_rank.a - 1 - k] > 0 ? value[low_rank.a - 1 - k] : 0;
    return OK;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

void galore_project(struct low_rank low_rank, struct tensor G, struct tensor P, void *scratch)
{
    (G.dtype == F32 ? galore_project_f32 : galore_project_f64)(low_rank, G, P, scratch);
}

/* Parameters without a projection step as with AdamW. */
void galore_step(const struct optimizer *optimizer, struct low_rank low_rank, struct tensor w, struct tensor g,
                 const struct tensor state[], struct step step)
{
    if (low_rank.r == 0) {
        optimizer_step(optimizer, w, g, state, step);
        return;
    }
    assert(w.dtype == g.dtype && (w.dtype == F32 || w.dtype == F64));
    (w.dtype == F32 ? galore_step_f32 : galore_step_f64)(low_rank, w, g, state, step, optimizer->natural);
}
