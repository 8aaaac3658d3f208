/* perturb.c -- makes an observer that disturbs every computed tensor by its rounding error.
 * verify/reference/reference.c and ref/golden/replay.c attach the observer to the reference.  The disturbance
 * changes the observed tensors in place.  No function reports errors. */
#include "ref/exact/grid.h"
#include "ref/model/perturb.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <string.h>

enum { AT_ONCE = 2048, PARALLEL_FROM = 16384 };     /* elements */

/* A number x moves by at most sum |x| + the larger of store |x| and step. */
struct disturbance { double sum, store, step; };

/* Numbers that are so large that `step` is less than `store` of them, all of a usual tensor's: nothing is divided. */
static bool are_large(const double *x, int64_t n, const struct disturbance *disturbance)
{
    double least = INFINITY;
    #pragma omp simd reduction(min : least)
    for (int64_t i = 0; i < n; i++) {
        const double size = x[i] == 0 ? INFINITY : fabs(x[i]);
        least = size < least ? size : least;
    }
    return least * disturbance->store > disturbance->step * (1 + 0x1p-30);
}

/* One Philox block gives the numbers for four elements.  They are converted to double and back a few at a time, so that
 * one loop serves all formats. */
static void disturb_few(struct tensor t, int64_t first, int64_t n, const struct disturbance *disturbance, uint64_t seed,
                        uint64_t stream)
{
    void *const at = (char *)t.data + (size_t)first * dtype_size(t.dtype);
    uint32_t word[AT_ONCE];
    double x[AT_ONCE];
    random_words(word, (n + 3) / 4, seed, stream, (uint64_t)first / 4);
    convert_numbers(x, F64, at, t.dtype, n);
    const double all = disturbance->sum + disturbance->store;
    /* r is uniform in -1 .. 1, and depends on seed, tensor and place alone. */
    if (disturbance->step == 0 || are_large(x, n, disturbance))
        for (int64_t i = 0; i < n; i++) x[i] *= 1 + ((double)word[i] * 0x1p-31 - 1) * all;
    else
        for (int64_t i = 0; i < n; i++) {
            const double r = (double)word[i] * 0x1p-31 - 1, step = disturbance->step / fabs(x[i]),
                         store = step > disturbance->store ? step : disturbance->store;
            x[i] = x[i] == 0 ? x[i] : x[i] * (1 + r * (disturbance->sum + store));
        }
    convert_numbers(at, t.dtype, x, F64, n);
}

static int64_t few(int64_t first, int64_t count) { return count - first < AT_ONCE ? count - first : AT_ONCE; }

static void disturb(struct tensor t, struct disturbance disturbance, uint64_t seed, uint64_t stream)
{
    const int64_t count = tensor_count(t);
    if (count <= PARALLEL_FROM) {
        for (int64_t i = 0; i < count; i += AT_ONCE) disturb_few(t, i, few(i, count), &disturbance, seed, stream);
        return;
    }
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i += AT_ONCE) disturb_few(t, i, few(i, count), &disturbance, seed, stream);
}

/* ---- the grids of exact sums ------------------------------------------------------------------------------------- */

/* The largest size in n numbers; 0 beside an infinity, so that such a row is left as it is. */
static double largest_of(const char *at, enum dtype dtype, int64_t n)
{
    double x[AT_ONCE], top = 0;
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        convert_numbers(x, F64, at + (size_t)i * dtype_size(dtype), dtype, few(i, n));
        #pragma omp simd reduction(max : top)
        for (int64_t k = 0; k < few(i, n); k++) top = fabs(x[k]) > top ? fabs(x[k]) : top;
    }
    return isfinite(top) ? top : 0;
}

/* Each number of a row moves by up to lambda half units of the grid that a product rounds the row to. */
static void disturb_row(struct tensor t, int64_t row, int bits, int finest, double lambda, uint64_t seed,
                        uint64_t stream)
{
    const int64_t width = tensor_cols(t), blocks = (width + 3) / 4;
    char *const at = (char *)t.data + (size_t)(row * width) * dtype_size(t.dtype);
    const int grid = grid_of(largest_of(at, t.dtype, width), bits, finest);
    const double most = grid == GRID_ZERO ? 0 : lambda * ldexp(1, grid - 1);
    for (int64_t i = 0; i < width && most > 0; i += AT_ONCE) {
        char *const here = at + (size_t)i * dtype_size(t.dtype);
        const int64_t n = few(i, width);
        uint32_t word[AT_ONCE];
        double x[AT_ONCE];
        random_words(word, (n + 3) / 4, seed, stream, (uint64_t)(row * blocks + i / 4));
        convert_numbers(x, F64, here, t.dtype, n);
        for (int64_t k = 0; k < n; k++) x[k] = x[k] == 0 ? 0 : x[k] + most * ((double)word[k] * 0x1p-31 - 1);
        convert_numbers(here, t.dtype, x, F64, n);
    }
}

static void disturb_rows(struct tensor t, int bits, int finest, double lambda, uint64_t seed, uint64_t stream)
{
    const int64_t rows = tensor_rows(t);
    #pragma omp parallel for schedule(static) if (tensor_count(t) > PARALLEL_FROM)
    for (int64_t i = 0; i < rows; i++) disturb_row(t, i, bits, finest, lambda, seed, stream);
}

/* ---- the observer ------------------------------------------------------------------------------------------------ */

static bool is_parameter(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".weight") == 0 || strcmp(dot, ".bias") == 0);
}

/* A sum of n terms has at most n parts.  What has fewer than two terms, such as the sum of stream and branch, is stored
 * in two steps at most. */
static int perturb_parts(int64_t terms, int asked)
{
    const int64_t most = terms < 2 ? 2 : terms;
    return asked < most ? asked : (int)most;
}

static void perturb_see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct perturbation *p = context;
    const enum dtype stored = dtype_is_narrow(p->stored) ? p->stored : t.dtype;
    (void)layer;
    const int parts = perturb_parts(terms, gradient && is_parameter(name) ? p->gradient_parts : p->parts);
    const double lambda = p->lambda > 0 ? p->lambda : PERTURB_LAMBDA;
    /* Gradients of weights are sums of the products of rows that have been moved. */
    if (p->grids != SUMS_ROUND && is_parameter(name)) return;
    if (p->grids != SUMS_ROUND) {
        disturb_rows(t, exact_bits_of(p->grids).token, gradient ? GRID_GRADIENT : GRID_BESIDE_GRADIENT, lambda, p->seed,
                     p->announced++);
        return;
    }
    const double steps = dtype_is_narrow(stored) ? (p->steps > 0 ? p->steps : 1) * (parts > 1 ? parts : 1) : 0;
    /* A sum of n terms is off by about lambda sqrt(n) u; storing in 16 bits adds its own step. */
    disturb(t,
            (struct disturbance){ .sum = lambda * sqrt((double)terms) * dtype_unit(dtype_wide(t.dtype)),
                                  .store = steps * 2 * dtype_unit(stored),
                                  .step = steps * dtype_step(stored) },
            p->seed, p->announced++);
}

struct observer perturbing_observer(struct perturbation *perturbation)
{
    return (struct observer){ .see = perturb_see, .context = perturbation };
}
